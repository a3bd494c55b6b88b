"""ClusterTail: how far can a quantile of |x| be trusted, when tokens of one trajectory are not independent?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats import inputs
from trimtab.stats.grid import LogGrid
from trimtab.stats.summary import Summary

__all__ = ["ClusterTail", "ratio_interval"]

CHUNK = 131_072
GRID = LogGrid(2, -10, 6)  # 4 buckets an octave of |x| over 2^-10..2^6

Float64 = npt.NDArray[np.float64]


class ClusterTail(Summary):
    """The interval of a quantile of |x|, as a pair of factors for a finer point estimate of it (LogSketch's).

    Counts |x| (float32, nats) coarsely per row and cluster; a value's cluster is its trajectory id % clusters. The
    bootstrap draws occupied clusters with replacement, so a burst within one trajectory widens the interval as it
    must. nan, +inf and -inf are counted apart. Queries need one row: `select`. Cameron, Gelbach & Miller 2008 on
    resampling whole clusters; the spread is scaled by sqrt(G / (G - 1)) and by
    Student's t over the normal quantile, for G clusters.

    >>> tail = ClusterTail()
    >>> tail.update(np.geomspace(0.01, 10.0, 600, dtype=np.float32), ids=np.arange(600) % 30)
    >>> low, high = tail.abs_quantile_interval(0.95)
    >>> tail.num_clusters, 0.6 < low < 1.0 < high < 1.4
    (30, True)
    """

    kind: ClassVar[bytes] = b"CT"

    def __init__(self, rows: int = 1, clusters: int = 64) -> None:
        self.rows = inputs.at_least_one("rows", rows)
        self.clusters = inputs.at_least_one("clusters", clusters)
        self._counts = np.zeros((rows, clusters, GRID.num_buckets), dtype=np.int64)
        self._non_finite = np.zeros((rows, 3), dtype=np.int64)

    def update(
        self, values: npt.ArrayLike, rows: npt.ArrayLike | None = None, ids: npt.ArrayLike | None = None
    ) -> None:
        """Add values (N,) of trajectories `ids` (N,), any integers; `rows` (N,) as in LogSketch. SummaryError too."""
        x = inputs.as_values(values)
        cells = inputs.as_rows(rows, x.size, self.rows)
        if ids is None:
            raise SummaryError("a ClusterTail needs the trajectory id of each value")
        group = np.mod(inputs.as_ids(ids, x.size, "ids"), self.clusters).astype(np.int64)
        if cells is not None:
            group += cells.astype(np.int64) * self.clusters
        finite = np.isfinite(x)
        if not finite.all():
            inputs.count_non_finite(x, cells, self._non_finite)
            x, group = x[finite], group[finite]
        flat = self._counts.reshape(-1)
        for start in range(0, x.size, CHUNK):
            part = slice(start, start + CHUNK)
            flat += np.bincount(group[part] * GRID.num_buckets + GRID.ids(x[part]), minlength=flat.size)

    def select(self, rows: Sequence[int]) -> ClusterTail:
        """A one-row summary of the given rows together. SummaryError if one does not exist or comes twice."""
        at = inputs.chosen(rows, self.rows)
        out = ClusterTail(1, self.clusters)
        out._counts[0] = self._counts[at].sum(axis=0)
        out._non_finite[0] = self._non_finite[at].sum(axis=0)
        return out

    @property
    def count(self) -> int:
        """How many finite values?"""
        return int(self.cluster_counts().sum())

    @property
    def num_clusters(self) -> int:
        """How many clusters hold a value? At most `clusters`, however many trajectories there are."""
        return int(np.count_nonzero(self.cluster_counts().sum(axis=1)))

    def cluster_counts(self) -> npt.NDArray[np.int64]:
        """(clusters, buckets) counts. SummaryError unless there is one row."""
        inputs.need_one_row(self.rows)
        return np.asarray(self._counts[0])

    def abs_quantile_interval(
        self, q: float, level: float = 0.95, replicates: int = 200, seed: int = 0
    ) -> tuple[float, float]:
        """Factors (low, high) around the q-quantile of |x|: multiply a point estimate by them.

        (nan, nan) with fewer than 2 occupied clusters, or where the quantile is outside 2^-10..2^6 nats.
        SummaryError unless 0 < q < 1 and 0 < level < 1.
        """
        return _factors(_log_quantiles((self,), q, replicates, seed)[0], self.num_clusters, level)

    def log_se(self, q: float, replicates: int = 200, seed: int = 0) -> float:
        """Bootstrap standard error of log(q-quantile of |x|), nats of nats; nan as for the interval."""
        logs = _log_quantiles((self,), q, replicates, seed)[0]
        groups = self.num_clusters
        return float(np.std(logs[1:])) * _small_sample(groups) if groups > 1 else float("nan")

    def _parameters(self) -> tuple[int, ...]:
        return (self.rows, self.clusters)

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._counts, self._non_finite)

    def _absorb(self, other: ClusterTail) -> None:
        self._counts += other._counts
        self._non_finite += other._non_finite


def ratio_interval(
    a: ClusterTail, b: ClusterTail, q: float, level: float = 0.95, replicates: int = 200, seed: int = 0
) -> tuple[float, float]:
    """Factors around the ratio of two slices' q-quantiles, a over b, of the same trajectories.

    The same clusters are drawn for both, so what a trajectory does to both cancels. (nan, nan) as for one interval.
    SummaryError if the numbers of clusters differ.
    """
    if a.clusters != b.clusters:
        raise SummaryError(f"cannot pair {a.clusters} clusters with {b.clusters}")
    top, bottom = _log_quantiles((a, b), q, replicates, seed)
    return _factors(top - bottom, min(a.num_clusters, b.num_clusters), level)


def _log_quantiles(tails: Sequence[ClusterTail], q: float, replicates: int, seed: int) -> list[Float64]:
    """For each tail: log quantile of all its clusters, then of each replicate; common draws of clusters."""
    if not 0.0 < q < 1.0:
        raise SummaryError(f"an interval's q lies in (0, 1), not {q}")
    counts = [tail.cluster_counts() for tail in tails]
    occupied = np.flatnonzero(sum(c.sum(axis=1) for c in counts))
    if occupied.size == 0:
        return [np.full(replicates + 1, np.nan) for _ in tails]
    weights = _bootstrap_weights(occupied.size, replicates, seed)
    return [_log_quantile(np.asarray(weights @ c[occupied], dtype=np.float64), q) for c in counts]


@lru_cache(maxsize=128)
def _bootstrap_weights(groups: int, replicates: int, seed: int) -> Float64:
    """(1 + replicates, groups): ones, then how often each replicate draws each group; the same for the same arguments."""
    draws = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1.0 / groups), size=replicates)
    weights = np.concatenate((np.ones((1, groups)), draws.astype(np.float64)))
    weights.setflags(write=False)
    return weights


def _log_quantile(counts: Float64, q: float) -> Float64:
    """(B,) log of the q-quantile of each row of (B, buckets), interpolated; nan where empty or off the grid."""
    cumulative = np.cumsum(counts, axis=1)
    target = q * cumulative[:, -1]
    at = np.argmax(cumulative >= target[:, None], axis=1)
    each = np.arange(at.size)
    inside = counts[each, at]
    share = (target - (cumulative[each, at] - inside)) / np.where(inside > 0, inside, 1.0)
    inner = np.log(GRID.edges()[1:-1])
    low, high = np.concatenate((inner[:1], inner)), np.concatenate((inner, inner[-1:]))
    out = low[at] + share * (high[at] - low[at])
    out[inside == 0] = np.nan
    if at[0] in (0, GRID.num_buckets - 1):
        out[0] = np.nan
    return np.asarray(out)


def _factors(logs: Float64, groups: int, level: float) -> tuple[float, float]:
    if not 0.0 < level < 1.0:
        raise SummaryError(f"an interval's level lies in (0, 1), not {level}")
    spread = logs[1:] - logs[0]
    if groups < 2 or np.isnan(spread).mean() > 0.5:
        return float("nan"), float("nan")
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    student = 1.0 + (z * z + 1.0) / (4.0 * (groups - 1))  # t over normal quantile, first order
    tails = ((1.0 - level) / 2.0, (1.0 + level) / 2.0)
    low, high = np.nanquantile(spread, tails) * _small_sample(groups) * student
    return float(np.exp(low)), float(np.exp(high))


def _small_sample(groups: int) -> float:
    return float(np.sqrt(groups / (groups - 1)))
