"""Quantiles and shares of a histogram: pure functions of its occupied buckets, ascending.

Order statistics are the lower ones, x_(ceil(q n)), as numpy's method "inverted_cdf".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.errors import SummaryError
from trimtab.stats.histograms.log_buckets import LogGrid
from trimtab.typing import Float64, Int64


class Axis(NamedTuple):
    """Occupied buckets in ascending order, none overlapping, and the exact extremes of what they hold.

    `upto` are the cumulated counts, one sum for every question; `total` their last.
    """

    low: Float64
    high: Float64
    number: Int64
    minimum: float
    maximum: float
    upto: Int64
    total: int


def abs_axis(grid: LogGrid, counts: Int64, minimum: float, maximum: float) -> Axis:
    """|x| of a (2, buckets) histogram; values under the grid are taken as 0, its overflow ends at the
    extreme."""
    boundaries = grid.boundaries()
    low, high = boundaries[:-1].copy(), boundaries[1:].copy()
    high[0] = 0.0
    abs_maximum = max(abs(minimum), abs(maximum))
    high[-1] = max(low[-1], abs_maximum)
    return _occupied(low, high, counts.sum(axis=0), max(0.0, minimum, -maximum), abs_maximum)


def signed_axis(grid: LogGrid, counts: Int64, minimum: float, maximum: float) -> Axis:
    """x of a (2, buckets) histogram, from the largest negative values over zero to the largest positive."""
    boundaries = grid.boundaries()
    low, high = boundaries[1:-1], boundaries[2:].copy()
    high[-1] = max(low[-1], abs(minimum), abs(maximum))
    lows = np.concatenate((-high[::-1], [0.0], low))
    highs = np.concatenate((-low[::-1], [0.0], high))
    count = np.concatenate((counts[1, :0:-1], [counts[0, 0] + counts[1, 0]], counts[0, 1:]))
    return _occupied(lows, highs, count, minimum, maximum)


def _occupied(low: Float64, high: Float64, count: Int64, minimum: float, maximum: float) -> Axis:
    at = np.flatnonzero(count)
    low, high = _clipped(low[at], minimum, maximum), _clipped(high[at], minimum, maximum)
    number = count[at]
    upto = np.cumsum(number)
    return Axis(low, high, number, minimum, maximum, upto, int(upto[-1]) if at.size else 0)


def _clipped(values: Float64, minimum: float, maximum: float) -> Float64:
    return np.asarray(np.minimum(np.maximum(values, minimum), maximum))


def quantiles(axis: Axis, qs: Sequence[float]) -> list[float]:
    """x_(ceil(q n)) for each q, by the harmonic middle of its bucket; the exact extreme at either end; nan
    when empty."""
    for q in qs:
        if not 0.0 <= q <= 1.0:
            raise SummaryError(f"a quantile's q lies in [0, 1], not {q}")
    if axis.total == 0:
        return [float("nan") for _ in qs]
    ranks = [max(1, math.ceil(q * axis.total * (1.0 - 1e-15))) for q in qs]
    index = np.minimum(np.searchsorted(axis.upto, ranks), axis.upto.size - 1).tolist()
    return [
        axis.maximum if rank >= axis.total else _middle(float(axis.low[at]), float(axis.high[at]))
        for rank, at in zip(ranks, index, strict=True)
    ]


def _middle(low: float, high: float) -> float:
    return low if low == high else 2.0 * low * high / (low + high)


def shares_below(axis: Axis, bounds: Sequence[float], inclusive: bool = False) -> list[float]:
    """Share of values < each bound (<= if inclusive), interpolated in the bucket that it cuts; nan when
    empty."""
    if axis.total == 0:
        return [float("nan") for _ in bounds]
    at = np.asarray(bounds, dtype=np.float64)[:, None]
    atom = axis.high <= axis.low
    inside = (at - axis.low) / np.where(atom, 1.0, axis.high - axis.low)
    if atom.any():
        inside = np.where(atom, at >= axis.low if inclusive else at > axis.low, inside)
    shares = np.sum(axis.number * _clipped(inside, 0.0, 1.0), axis=1) / axis.total
    return np.where(np.isnan(at[:, 0]), np.nan, shares).tolist()  # type: ignore[no-any-return]


def top_mass_share(axis: Axis, fraction: float) -> float:
    """Share of the sum held by the largest ceil(fraction n) values; nan when empty or the sum is zero."""
    if not 0.0 <= fraction <= 1.0:
        raise SummaryError(f"a fraction lies in [0, 1], not {fraction}")
    count = axis.number[::-1]
    middle = ((axis.low + axis.high) / 2.0)[::-1]
    mass = float(np.sum(count * middle))
    if mass == 0.0:
        return float("nan")
    wanted = int(np.ceil(fraction * int(count.sum()) * (1.0 - 1e-15)))
    before = np.cumsum(count) - count
    return float(np.sum(np.clip(wanted - before, 0, count) * middle) / mass)


def spread(axis: Axis, k: int) -> Float64:
    """The k largest values, descending: each bucket's values spread evenly in it, the first one exact."""
    if k < 0:
        raise SummaryError(f"cannot give {k} tail values; k is 0 or more")
    count, low, high = axis.number[::-1], axis.low[::-1], axis.high[::-1]
    before = np.cumsum(count) - count
    buckets = int(np.count_nonzero(before < k))
    count, low, high = count[:buckets], low[:buckets], high[:buckets]
    within = np.arange(int(count.sum())) - np.repeat(before[:buckets], count)
    share = (within + 0.5) / np.repeat(count, count)
    out = np.repeat(high, count) - share * np.repeat(high - low, count)
    out[:1] = axis.maximum
    return np.asarray(out[:k], dtype=np.float64)
