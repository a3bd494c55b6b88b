"""How many episodes run at once, and which of them are many? Of times and durations alone: outcomes have no
part in it."""

from __future__ import annotations

import numpy as np

from trimtab.traces.table.types import TraceTable
from trimtab.typing import Float64

_SHORT = 0.05  # the share of episodes that may be over before the load has been looked at
_MIN_SIDE = 8  # episodes on each side of a split


def looked_at_s(table: TraceTable) -> float:
    """Seconds from an episode's beginning in which the load is taken: what all but the shortest twentieth run
    for.

    As long for every episode: one that fails at once, or hangs, is not seen in a busier or quieter time by
    that."""
    return float(np.quantile(table.duration_s, _SHORT, method="lower"))


def running_at_once(table: TraceTable) -> Float64 | None:
    """(E,) how many episodes were open in the first `looked_at_s` of each, itself included, on average over
    that time; None without times and durations of all. Where that time is zero, those open as it began; one
    that ends the moment another begins is still open."""
    if not table.num_episodes or not np.isfinite(table.time).all() or not np.isfinite(table.duration_s).all():
        return None
    began = table.time - table.time.min()
    starts, ends, seconds = np.sort(began), np.sort(began + table.duration_s), looked_at_s(table)
    if seconds <= 0:
        open_now = np.searchsorted(starts, began, "right") - np.searchsorted(ends, began, "left")
        at_once: Float64 = open_now.astype(np.float64)
        return at_once
    inside = _since(starts, began + seconds) - _since(starts, began)
    over = _since(ends, began + seconds) - _since(ends, began)
    at_once_mean: Float64 = np.round((inside - over) / seconds, 3)  # long sums round off
    return at_once_mean


def _since(moments: Float64, now: Float64) -> Float64:
    """(E,) seconds since each of the sorted moments that had come by `now` (E,), added up."""
    before = np.searchsorted(moments, now)
    added: Float64 = before * now - np.r_[0.0, np.cumsum(moments)][before]
    return added


def high_load(load: Float64) -> float:
    """The load above which it is high: where both sides, of eight episodes at least, are most alike within
    (Otsu 1979).

    >>> high_load(np.array([1.0] * 10 + [2.0] * 10 + [30.0] * 60))
    2.0
    """
    ranked = np.sort(load)
    n, total = load.size, np.cumsum(ranked)
    below = np.arange(1, n)
    apart = (total[:-1] / below - (total[-1] - total[:-1]) / (n - below)) ** 2 * below * (n - below)
    min_side = min(_MIN_SIDE, n // 4)
    splits = (ranked[1:] > ranked[:-1]) & (below >= min_side) & (n - below >= min_side)
    if not splits.any():
        splits = ranked[1:] > ranked[:-1]
    return float(ranked[int(np.where(splits, apart, -1.0).argmax())])
