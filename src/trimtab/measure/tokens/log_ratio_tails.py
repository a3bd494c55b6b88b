"""Tails of |log-ratio|: quantiles with intervals, and F(tau).

Question: how far do the most surprising tokens lie, where the mean says nothing? Intervals are bootstrapped
by trajectory, because tokens of one episode are not independent.

The post-tool tail relative to the text tail of the same steps.

Drift from the start grows in every run that learns, in both slices; their ratio does not have to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.catalog import TAUS, bound
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import ratio_interval

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_WITH_INTERVAL = ("p95", "p99")


def tails(state: SliceState) -> Iterator[Value]:
    """`<ratio>/p50 .. p999`, `<ratio>/max`, `<ratio>/exceed_<tau>` for every ratio observed. nats; shares for
    exceed."""
    for name in RATIOS:
        sketch = state.summaries.get(f"{name}/sketch")
        if sketch is None:
            continue
        n = sketch.count
        spans = state.summaries[f"{name}/clusters"].abs_quantile_intervals(
            [QUANTILES[q] for q in _WITH_INTERVAL]
        )
        factors = dict(zip(_WITH_INTERVAL, spans, strict=True))
        values = sketch.abs_quantiles(list(QUANTILES.values()))
        for label, value in zip(QUANTILES, values, strict=True):
            below, above = factors.get(label, (math.nan, math.nan))
            yield Value(f"{name}/{label}", value, n, value * below, value * above)
        yield Value(f"{name}/max", sketch.abs_max, n)
        shares = sketch.abs_exceedances([math.log(tau) for tau in TAUS])
        for tau, share in zip(TAUS, shares, strict=True):
            yield Value(f"{name}/exceed_{tau:g}", share, n)


def tail_ratio(text: SliceState, post_tool: SliceState, what: str = "drift") -> Iterator[Value]:
    """`tail_ratio/p99` and `p95`: quantile of |drift| after a tool over that in text, with a bootstrap
    interval.

    nan with a reason when either slice has no such ratio.
    """
    floor = bound("tail_floor")
    below, above = text.summaries.get(f"{what}/sketch"), post_tool.summaries.get(f"{what}/sketch")
    for label, q in (("p99", 0.99), ("p95", 0.95)):
        if below is None or above is None or not below.count or not above.count:
            yield Value(f"tail_ratio/{label}", math.nan, 0, reason=f"{what} not observed in both slices")
            continue
        bottom = max(below.abs_quantile(q), floor)
        value = max(above.abs_quantile(q), floor) / bottom
        low, high = ratio_interval(
            post_tool.summaries[f"{what}/clusters"], text.summaries[f"{what}/clusters"], q
        )
        yield Value(f"tail_ratio/{label}", value, above.count, value * low, value * high)
