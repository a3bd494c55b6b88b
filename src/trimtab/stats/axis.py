"""Quantiles and shares of a histogram: pure functions of its occupied buckets, ascending.

Order statistics are the lower ones, x_(ceil(q n)), as numpy's method "inverted_cdf".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.grid import LogGrid

__all__ = ["Axis", "abs_axis", "quantile", "share_below", "signed_axis", "spread", "top_mass_share"]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


class Axis(NamedTuple):
    """Occupied buckets in ascending order, none overlapping, and the exact extremes of what they hold."""

    low: Float64
    high: Float64
    number: Int64
    least: float
    greatest: float


def abs_axis(grid: LogGrid, counts: Int64, least: float, greatest: float) -> Axis:
    """|x| of a (2, buckets) histogram; values under the grid are taken as 0, its overflow ends at the extreme."""
    edges = grid.edges()
    low, high = edges[:-1].copy(), edges[1:].copy()
    high[0] = 0.0
    abs_greatest = max(abs(least), abs(greatest))
    high[-1] = max(low[-1], abs_greatest)
    return _occupied(low, high, counts.sum(axis=0), max(0.0, least, -greatest), abs_greatest)


def signed_axis(grid: LogGrid, counts: Int64, least: float, greatest: float) -> Axis:
    """x of a (2, buckets) histogram, from the largest negative values over zero to the largest positive."""
    edges = grid.edges()
    low, high = edges[1:-1], edges[2:].copy()
    high[-1] = max(low[-1], abs(least), abs(greatest))
    lows = np.concatenate((-high[::-1], [0.0], low))
    highs = np.concatenate((-low[::-1], [0.0], high))
    count = np.concatenate((counts[1, :0:-1], [counts[0, 0] + counts[1, 0]], counts[0, 1:]))
    return _occupied(lows, highs, count, least, greatest)


def _occupied(low: Float64, high: Float64, count: Int64, least: float, greatest: float) -> Axis:
    at = np.flatnonzero(count)
    low, high = np.clip(low[at], least, greatest), np.clip(high[at], least, greatest)
    return Axis(low, high, count[at], least, greatest)


def quantile(axis: Axis, q: float) -> float:
    """x_(ceil(q n)), by the harmonic middle of its bucket; the exact extreme at either end; nan when empty."""
    if not 0.0 <= q <= 1.0:
        raise SummaryError(f"a quantile's q lies in [0, 1], not {q}")
    total = int(axis.number.sum())
    if total == 0:
        return float("nan")
    rank = max(1, int(np.ceil(q * total * (1.0 - 1e-15))))
    if rank >= total:
        return axis.greatest
    at = int(np.searchsorted(np.cumsum(axis.number), rank))
    low, high = float(axis.low[at]), float(axis.high[at])
    return low if low == high else 2.0 * low * high / (low + high)


def share_below(axis: Axis, bound: float, inclusive: bool = False) -> float:
    """Share of values < bound (<= if inclusive), interpolated in the bucket that `bound` cuts; nan when empty."""
    total = int(axis.number.sum())
    if total == 0 or np.isnan(bound):
        return float("nan")
    atom = axis.high <= axis.low
    inside = (bound - axis.low) / np.where(atom, 1.0, axis.high - axis.low)
    inside = np.where(atom, bound >= axis.low if inclusive else bound > axis.low, inside)
    return float(np.sum(axis.number * np.clip(inside, 0.0, 1.0)) / total)


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
    out[:1] = axis.greatest
    return np.asarray(out[:k], dtype=np.float64)
