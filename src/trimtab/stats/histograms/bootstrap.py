"""Cluster bootstrap of quantiles of histograms: draw whole clusters with replacement, read the quantile
again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from trimtab.errors import SummaryError
from trimtab.stats.histograms.log_buckets import LogGrid
from trimtab.typing import Float64, Int64


def log_quantiles(
    counts: Sequence[Int64], grid: LogGrid, qs: Sequence[float], replicates: int, seed: int
) -> list[list[Float64]]:
    """For each (clusters, buckets) and q: log quantile of all clusters, then of each replicate; common draws
    of clusters.

    SummaryError unless 0 < q < 1; nan where there is nothing, or the quantile is off the grid.
    """
    for q in qs:
        if not 0.0 < q < 1.0:
            raise SummaryError(f"an interval's q lies in (0, 1), not {q}")
    occupied = np.flatnonzero(sum(c.sum(axis=1) for c in counts))
    if occupied.size == 0:
        return [[np.full(replicates + 1, np.nan) for _ in qs] for _ in counts]
    weights = _bootstrap_weights(occupied.size, replicates, seed)
    return [_log_quantiles(weights, c[occupied], grid, qs) for c in counts]


def draw(groups: int, replicates: int, seed: int) -> Float64:
    """(1 + replicates, groups): how often each group counts; the data themselves first."""
    return _bootstrap_weights(groups, replicates, seed)


def bucket_factors(counts: Int64, replicates: int, seed: int) -> Float64:
    """Of (clusters, buckets): what each bucket's count is multiplied by in a replicate, (1 + replicates,
    buckets).

    The first row is the data itself, ones; so is an empty bucket's column.
    """
    occupied, total = np.flatnonzero(counts.sum(axis=1)), counts.sum(axis=0)
    factors = np.ones((replicates + 1, total.size))
    if occupied.size == 0:
        return factors
    at = np.flatnonzero(total)
    drawn = draw(occupied.size, replicates, seed) @ counts[np.ix_(occupied, at)].astype(np.float64)
    factors[:, at] = drawn / total[at]
    return factors


@lru_cache(maxsize=128)
def _bootstrap_weights(groups: int, replicates: int, seed: int) -> Float64:
    """(1 + replicates, groups): ones, then how often each replicate draws each group; the same for the same
    arguments."""
    draws = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1.0 / groups), size=replicates)
    weights = np.concatenate((np.ones((1, groups)), draws.astype(np.float64)))
    weights.setflags(write=False)
    return weights


def _log_quantiles(weights: Float64, counts: Int64, grid: LogGrid, qs: Sequence[float]) -> list[Float64]:
    """For each q (B,): log of the q-quantile of every weighted sum, (B, groups), of counts (groups, buckets).

    Interpolated; nan where empty or off the grid. Only buckets between the first and the last that hold
    something count.
    """
    occupied = np.flatnonzero(counts.any(axis=0))
    first, last = (int(occupied[0]), int(occupied[-1])) if occupied.size else (0, 0)
    drawn = np.asarray(weights @ counts[:, first : last + 1].astype(np.float64))
    cumulative = np.cumsum(drawn, axis=1)
    return [_log_quantile(drawn, cumulative, first, grid, q) for q in qs]


def _log_quantile(counts: Float64, cumulative: Float64, first: int, grid: LogGrid, q: float) -> Float64:
    target = q * cumulative[:, -1]
    at = np.argmax(cumulative >= target[:, None], axis=1)
    each = np.arange(at.size)
    inside = counts[each, at]
    share = (target - (cumulative[each, at] - inside)) / np.where(inside > 0, inside, 1.0)
    at += first
    low, high = _log_edges(grid)
    out = low[at] + share * (high[at] - low[at])
    out[inside == 0] = np.nan
    if at[0] in (0, grid.num_buckets - 1):
        out[0] = np.nan
    return np.asarray(out)


@lru_cache(maxsize=8)
def _log_edges(grid: LogGrid) -> tuple[Float64, Float64]:
    """Logarithms of each bucket's ends; of the first and the last bucket both are the one that is finite."""
    inner = np.log(grid.boundaries()[1:-1])
    return np.concatenate((inner[:1], inner)), np.concatenate((inner, inner[-1:]))


def factors(logs: Float64, groups: int, level: float) -> tuple[float, float]:
    """Factors (low, high) around the first of the log quantiles, from the spread of the others.

    (nan, nan) with fewer than 2 groups or where most replicates are nan. SummaryError unless 0 < level < 1.
    """
    if not 0.0 < level < 1.0:
        raise SummaryError(f"an interval's level lies in (0, 1), not {level}")
    spread = logs[1:] - logs[0]
    known = np.sort(spread[~np.isnan(spread)])
    if groups < 2 or 2 * known.size < spread.size:
        return float("nan"), float("nan")
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    student = 1.0 + (z * z + 1.0) / (4.0 * (groups - 1))  # t over normal quantile, first order
    tails = ((1.0 - level) / 2.0, (1.0 + level) / 2.0)
    low, high = (_interpolated(known, tail) * _small_sample(groups) * student for tail in tails)
    return float(np.exp(low)), float(np.exp(high))


def _interpolated(ascending: Float64, q: float) -> float:
    """The q-quantile as np.quantile gives it by default, without its checks, which cost more than the
    work."""
    at = q * (ascending.size - 1)
    below = int(at)
    one, two = float(ascending[below]), float(ascending[min(below + 1, ascending.size - 1)])
    share = at - below
    return two - (two - one) * (1.0 - share) if share >= 0.5 else one + (two - one) * share


def standard_error(logs: Float64, groups: int) -> float:
    """Standard deviation of the replicates' log quantiles; nan with fewer than 2 groups."""
    return float(np.std(logs[1:])) * _small_sample(groups) if groups > 1 else float("nan")


def margin(estimates: Float64, groups: int, level: float = 0.95) -> float:
    """Half the width of the normal interval around the first estimate, by the spread of the others, its
    replicates.

    For smooth statistics, where 100 replicates give the spread to 7 % but not its quantiles. Student's t for
    the number of groups. nan with fewer than 2 groups or where most replicates are not finite.
    """
    rest = estimates[1:][np.isfinite(estimates[1:])]
    if groups < 2 or 2 * rest.size < estimates.size:
        return float("nan")
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    return z * (1.0 + (z * z + 1.0) / (4.0 * (groups - 1))) * _small_sample(groups) * float(np.std(rest))


def _small_sample(groups: int) -> float:
    return float(np.sqrt(groups / (groups - 1)))
