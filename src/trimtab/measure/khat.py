"""Pareto k-hat of w and of 1/w: is the mean of these weights an estimate at all?

Both directions, because the toxic one in tool-use runs is w near 0, which the usual k-hat cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.measure.ratios import RATIOS
from trimtab.measure.state import SliceState
from trimtab.measure.value import Value
from trimtab.stats import khat_bound, pareto_khat, pareto_tail_size

__all__ = ["khat"]


def khat(state: SliceState) -> Iterator[Value]:
    """`<ratio>/khat`, `<ratio>/khat_inverse`, `<ratio>/khat_bound`; from exact top-k values where they
    reach (up to about 29,000 tokens, and not after a reload from disk), else from the histogram's tail, whose bias is smaller
    than that of a tail cut at 512 (tests/stats/test_pareto.py: worst 0.02 against 0.24 at 100,000 values)."""
    for name, ratio in RATIOS.items():
        sketch = state.parts.get(f"{name}/sketch")
        if sketch is None or "khat" not in ratio.valid:
            continue
        n = sketch.count
        for part, side, key in (("upper", "upper", "khat"), ("lower", "lower", "khat_inverse")):
            top = state.parts.get(f"{name}/{part}")
            if top is not None and pareto_tail_size(n) < top.k:
                values = top.values()
            else:
                values = sketch.tail_values(side, pareto_tail_size(n) + 1)
                values = values if side == "upper" else -values
            fit = pareto_khat(values, n)
            yield Value(f"{name}/{key}", fit.khat, n, reason=fit.reason)
        yield Value(f"{name}/khat_bound", khat_bound(n), n)
