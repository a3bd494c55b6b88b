"""Order of the episodes and of their policies, and how many episodes ran at once. Of times and durations
alone: outcomes have no part in it."""

from __future__ import annotations

import math
import re

import numpy as np

from trimtab.catalog import bound
from trimtab.traces.table.types import TraceTable
from trimtab.typing import Float64, Int64


def in_order(table: TraceTable) -> tuple[Int64, str]:
    """(E,) indices of the episodes as they began, and by what: the time where every episode has one, else the
    log's order; the numbers of policies or training steps, where every episode has one, go before that, for
    files of steps are read in the order of their names."""
    if table.num_episodes and np.isfinite(table.time).all():
        return np.argsort(table.time, kind="stable"), "time"
    if (table.version >= 0).all() and (ranks := _numbers(table.versions)):
        return np.argsort(_ranks(ranks)[table.version], kind="stable"), "order"
    return np.arange(table.num_episodes), "order"


def version_ranks(table: TraceTable) -> Int64:
    """(V,) rank of each of `table.versions` in their order: by number where all are numbers or differ in
    their numbers only (step-2 comes before step-10), else by the median time of their episodes where every
    episode has one, else as they came in the log."""
    numbers = _numbers(table.versions)
    if numbers is not None:
        return _ranks(numbers)
    _, by = in_order(table)
    if by == "order":
        return np.arange(len(table.versions))
    middle = [
        float(np.median(table.time[mine])) if (mine := table.version == version).any() else math.inf
        for version in range(len(table.versions))
    ]
    return np.argsort(np.argsort(middle, kind="stable"))


def _ranks(numbers: list[tuple[float, ...]]) -> Int64:
    rank = {number: at for at, number in enumerate(sorted(set(numbers)))}
    return np.array([rank[number] for number in numbers], np.int64)


def _numbers(versions: list[str]) -> list[tuple[float, ...]] | None:
    """What numbers each holds; None where they differ in more than that."""
    try:
        plain: list[tuple[float, ...]] = [(float(version),) for version in versions]
    except ValueError:
        parts = [re.split(r"(\d+)", version) for version in versions]
        if len({(len(part), *part[::2]) for part in parts}) > 1:
            return None
        return [tuple(float(digits) for digits in part[1::2]) for part in parts]
    return None if any(math.isnan(number[0]) for number in plain) else plain


def looked_at_s(table: TraceTable) -> float:
    """Seconds from an episode's beginning in which the load is taken: what all but the shortest twentieth run
    for.

    As long for every episode: one that fails at once, or hangs, is not seen in a busier or quieter time by
    that."""
    return float(np.quantile(table.duration_s, bound("trace_short_frac"), method="lower"))


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
    min_side = min(int(bound("trace_split_min")), n // 4)
    splits = (ranked[1:] > ranked[:-1]) & (below >= min_side) & (n - below >= min_side)
    if not splits.any():
        splits = ranked[1:] > ranked[:-1]
    return float(ranked[int(np.where(splits, apart, -1.0).argmax())])
