"""The first-order gap: what the token-level surrogate leaves out of the sequence-level objective.

MiniRL (arXiv 2512.01374) rests on prod w = 1 + sum(w - 1) + higher order; this is the size of the higher
order. Products of weights leave float32 beyond 88 nats and float64 beyond 709, so a large gap is kept as its
logarithm. An infinite gap is the largest one, not a missing one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import LogSketch
from trimtab.typing import Float64, Int64

_EXPONENT = 24
"""Gaps are histogrammed up to 2^24; larger ones by their logarithm."""

DIRECT = 600.0
"""Nats up to which e^x is computed as it stands: float64 holds the sums of 10^47 such values."""


def first_order_gaps(values: npt.NDArray[np.floating], sequence: Int64) -> Float64:
    """Return log |prod w - 1 - sum(w - 1)| of each sequence that has tokens.

    Args:
        values: Log-ratios log w of the tokens (N,), nats.
        sequence: Sequence of each token (N,).

    Returns:
        Logarithms (S,), in no order that matters: -inf for a gap of zero, inf for a weight of infinity, NaN
        where a log-ratio is NaN.

    Example:
        >>> first_order_gaps(np.log([3.0, 5.0, 7.0]), np.array([0, 0,
        ...     4])).round(6).tolist()  # 15 - 1 - 6; one token
        [2.079442, -inf]
    """
    if not values.size:
        return np.empty(0)
    logs = values.astype(np.float64)
    _, row, size = np.unique(sequence, return_inverse=True, return_counts=True)
    largest = np.full(size.size, -np.inf)
    with np.errstate(all="ignore"):  # infinities and NaN are meant to spread
        np.maximum.at(largest, row, logs)
        product = np.bincount(row, weights=logs)
        sums = np.bincount(row, weights=np.expm1(np.minimum(logs, DIRECT)))
        gap = np.log(np.abs(np.expm1(np.minimum(product, DIRECT)) - sums))
        far = (np.maximum(largest, product) > DIRECT) & np.isfinite(product) & np.isfinite(largest)
        if far.any():
            shifted = np.exp(logs - np.where(np.isfinite(largest), largest, 0.0)[row])
            total = largest + np.log(np.bincount(row, weights=shifted))
            top = np.maximum(product, total)
            rest = (size - 1) * np.exp(-top)
            gap[far] = (top + np.log(np.abs(np.exp(product - top) - np.exp(total - top) + rest)))[far]
        gap[size == 1] = -np.inf  # a product of one weight is that weight
        gap[np.isposinf(largest) & (size > 1)] = np.inf
        gap[np.isnan(product)] = np.nan
    return gap


def add_gaps(state: SliceState, ratio: str, gaps: Float64) -> None:
    """Add the gaps of a slice's sequences to its state: the histogram, and the logarithms of those beyond
    it."""
    sketch = LogSketch(highest_exponent=_EXPONENT)
    sketch.update(gaps)
    state.summaries[f"{ratio}/gap"] = sketch
    beyond = gaps[gaps > 2.0**_EXPONENT]
    if beyond.size:
        state.summaries[f"{ratio}/log_gap"] = _log_sketch(np.log(beyond))


def add_log_gaps(state: SliceState, ratio: str, log_gaps: Float64) -> None:
    """`add_gaps` of logarithms, for gaps that float64 may not hold."""
    with np.errstate(over="ignore"):
        add_gaps(state, ratio, np.exp(log_gaps))
    beyond = log_gaps[log_gaps > _EXPONENT * math.log(2.0)]
    if beyond.size:
        state.summaries[f"{ratio}/log_gap"] = _log_sketch(beyond)


def _log_sketch(logs: Float64) -> LogSketch:
    sketch = LogSketch(mantissa_bits=7, lowest_exponent=4, highest_exponent=14)
    sketch.update(logs)
    return sketch


def first_order(state: SliceState) -> Iterator[Value]:
    """`total/first_order_gap_mean` and `_p95` over sequences of |prod w - 1 - sum(w - 1)|; inf beyond
    1e308."""
    gap = state.summaries.get("total/gap")
    if gap is not None:
        beyond = state.summaries.get("total/log_gap")
        n = gap.count + gap.num_posinf
        yield Value("total/first_order_gap_mean", _mean(gap, beyond, n), n)
        yield Value("total/first_order_gap_p95", _quantile(gap, beyond, n, 0.95), n)


def _mean(gap: LogSketch, beyond: LogSketch | None, n: int) -> float:
    """Where float32 overflowed, the gaps beyond the histogram are all of the sum: the others are below 1e-30
    of it."""
    if not gap.num_posinf:
        return gap.mean() if gap.count else math.nan
    if beyond is None or beyond.num_posinf:  # a state of version 0.1 does not know how large they were
        return math.inf
    return _exp(beyond.log_mean_exp(1) + math.log(beyond.count) - math.log(n))


def _quantile(gap: LogSketch, beyond: LogSketch | None, n: int, q: float) -> float:
    rank = math.ceil(q * n)
    if not n:
        return math.nan
    value = gap.abs_quantile(rank / gap.count) if rank <= gap.count else math.inf
    above = n - rank  # gaps larger than the one wanted
    if value <= 2.0**_EXPONENT or beyond is None or above < beyond.num_posinf:
        return value
    position = beyond.count - (above - beyond.num_posinf)
    return _exp(beyond.quantile(position / beyond.count)) if position > 0 else value


def _exp(log_value: float) -> float:
    return math.exp(log_value) if log_value < 709.0 else math.inf
