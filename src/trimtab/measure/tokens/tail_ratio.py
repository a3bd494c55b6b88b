"""The post-tool tail relative to the text tail of the same steps.

Drift from the start grows in every run that learns, in both slices; their ratio does not have to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.catalog import bound
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value
from trimtab.stats import ratio_interval


def tail_ratio(text: SliceState, post_tool: SliceState, what: str = "drift") -> Iterator[Value]:
    """`tail_ratio/p99` and `p95`: quantile of |drift| after a tool over that in text, with a bootstrap interval.

    nan with a reason when either slice has no such ratio.
    """
    floor = bound("tail_floor")
    below, above = text.parts.get(f"{what}/sketch"), post_tool.parts.get(f"{what}/sketch")
    for label, q in (("p99", 0.99), ("p95", 0.95)):
        if below is None or above is None or not below.count or not above.count:
            yield Value(f"tail_ratio/{label}", math.nan, 0, reason=f"{what} not observed in both slices")
            continue
        bottom = max(below.abs_quantile(q), floor)
        value = max(above.abs_quantile(q), floor) / bottom
        low, high = ratio_interval(post_tool.parts[f"{what}/clusters"], text.parts[f"{what}/clusters"], q)
        yield Value(f"tail_ratio/{label}", value, above.count, value * low, value * high)


def log_ratio_se(value: Value) -> float:
    """Standard error of log(value) read off its 95 % interval; nan without one."""
    if not (value.low > 0 and value.high > 0):
        return math.nan
    return (math.log(value.high) - math.log(value.low)) / (2 * 1.96)
