"""The first-order gap: what the token-level surrogate leaves out of the sequence-level objective.

MiniRL (arXiv 2512.01374) rests on prod w = 1 + sum(w - 1) + higher order; this is the size of the higher order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value


def first_order(state: SliceState) -> Iterator[Value]:
    """`total/first_order_gap_mean` and `_p95` over sequences of |prod w - 1 - sum(w - 1)|."""
    gap = state.parts.get("total/gap")
    if gap is not None:
        yield Value("total/first_order_gap_mean", gap.mean() if gap.count else math.nan, gap.count)
        yield Value("total/first_order_gap_p95", gap.abs_quantile(0.95), gap.count)
