"""Tails of |log-ratio|: quantiles with intervals, and F(tau).

Question: how far do the most surprising tokens lie, where the mean says nothing? Intervals are bootstrapped by
trajectory, because tokens of one episode are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.catalog import TAUS
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_WITH_INTERVAL = ("p95", "p99")


def tails(state: SliceState) -> Iterator[Value]:
    """`<ratio>/p50 .. p999`, `<ratio>/max`, `<ratio>/exceed_<tau>` for every ratio observed. nats; shares for exceed."""
    for name in RATIOS:
        sketch = state.parts.get(f"{name}/sketch")
        if sketch is None:
            continue
        n = sketch.count
        spans = state.parts[f"{name}/clusters"].abs_quantile_intervals([QUANTILES[q] for q in _WITH_INTERVAL])
        factors = dict(zip(_WITH_INTERVAL, spans, strict=True))
        values = sketch.abs_quantiles(list(QUANTILES.values()))
        for label, value in zip(QUANTILES, values, strict=True):
            below, above = factors.get(label, (math.nan, math.nan))
            yield Value(f"{name}/{label}", value, n, value * below, value * above)
        yield Value(f"{name}/max", sketch.abs_max, n)
        shares = sketch.abs_exceedances([math.log(tau) for tau in TAUS])
        for tau, share in zip(TAUS, shares, strict=True):
            yield Value(f"{name}/exceed_{tau:g}", share, n)
