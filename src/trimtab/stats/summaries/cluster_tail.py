"""ClusterTail: how far can a quantile of |x| be trusted, when tokens of one trajectory are not
independent?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.histograms import bootstrap
from trimtab.stats.histograms.log_buckets import LogGrid
from trimtab.stats.summaries import input_checks as inputs
from trimtab.stats.summaries.base import Summary

CHUNK = 131_072
_FEW = 8  # buckets a value from which adding one by one is faster than a count of all buckets
GRID = LogGrid(2, -10, 6)  # 4 buckets an octave of |x| over 2^-10..2^6


class ClusterTail(Summary):
    """The interval of a quantile of |x|, as a pair of factors for a finer point estimate of it (LogSketch's).

    Counts |x| (float32, nats) coarsely per row and cluster; a value's cluster is its trajectory id %
    clusters. The bootstrap draws occupied clusters with replacement, so a burst within one trajectory widens
    the interval as it must. nan, +inf and -inf are counted apart. Queries need one row: `select`. Cameron,
    Gelbach & Miller 2008 on resampling whole clusters; the spread is scaled by sqrt(G / (G - 1)) and by
    Student's t over the normal quantile, for G clusters.

    >>> tail = ClusterTail()
    >>> tail.update(np.geomspace(0.01, 10.0, 600, dtype=np.float32), ids=np.arange(600) % 30)
    >>> low, high = tail.abs_quantile_interval(0.95)
    >>> tail.num_clusters, 0.6 < low < 1.0 < high < 1.4
    (30, True)
    """

    kind: ClassVar[bytes] = b"CT"
    adds_up: ClassVar[bool] = True

    def __init__(self, rows: int = 1, clusters: int = 64) -> None:
        self.rows = inputs.at_least_one("rows", rows)
        self.clusters = inputs.at_least_one("clusters", clusters)
        self._counts = np.zeros((rows, clusters, GRID.num_buckets), dtype=np.int64)
        self._non_finite = np.zeros((rows, 3), dtype=np.int64)

    def update(
        self, values: npt.ArrayLike, rows: npt.ArrayLike | None = None, ids: npt.ArrayLike | None = None
    ) -> None:
        """Add values (N,) of trajectories `ids` (N,), any integers; `rows` (N,) as in LogSketch. SummaryError
        too."""
        x = inputs.as_values(values)
        cells = inputs.as_rows(rows, x.size, self.rows)
        if ids is None:
            raise SummaryError("a ClusterTail needs the trajectory id of each value")
        trajectories = inputs.as_ids(ids, x.size, "ids")
        for start in range(0, x.size, CHUNK):
            part = slice(start, start + CHUNK)
            self._add(x[part], None if cells is None else cells[part], trajectories[part])

    def _add(self, x: npt.NDArray[np.float32], cells: npt.NDArray[Any] | None, ids: npt.NDArray[Any]) -> None:
        finite = np.isfinite(x)
        if not finite.all():
            inputs.count_non_finite(x, cells, self._non_finite)
            x, cells, ids = x[finite], None if cells is None else cells[finite], ids[finite]
        wide = ids.astype(np.int64)
        # then a mask is the remainder, ten times faster
        power_of_two = self.clusters & (self.clusters - 1) == 0
        index = wide & (self.clusters - 1) if power_of_two else wide % self.clusters
        if cells is not None:
            index += cells.astype(np.int64) * self.clusters
        index *= GRID.num_buckets
        index += GRID.ids(x)
        flat = self._counts.reshape(-1)
        if index.size * _FEW < flat.size:
            np.add.at(flat, index, 1)
        else:
            flat += np.bincount(index, minlength=flat.size)

    def select(self, rows: Sequence[int]) -> ClusterTail:
        """A one-row summary of the given rows together. SummaryError if one does not exist or comes twice."""
        at = inputs.chosen(rows, self.rows)
        out = ClusterTail(1, self.clusters)
        for row in at:  # in place: a copy of all chosen rows would be megabytes
            out._counts[0] += self._counts[row]
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
        return self.abs_quantile_intervals([q], level, replicates, seed)[0]

    def abs_quantile_intervals(
        self, qs: Sequence[float], level: float = 0.95, replicates: int = 200, seed: int = 0
    ) -> list[tuple[float, float]]:
        """`abs_quantile_interval` of each q, from the same replicates: little more than the cost of one."""
        (logs,) = bootstrap.log_quantiles([self.cluster_counts()], GRID, qs, replicates, seed)
        return [bootstrap.factors(each, self.num_clusters, level) for each in logs]

    def log_se(self, q: float, replicates: int = 200, seed: int = 0) -> float:
        """Bootstrap standard error of log(q-quantile of |x|), nats of nats; nan as for the interval."""
        ((logs,),) = bootstrap.log_quantiles([self.cluster_counts()], GRID, [q], replicates, seed)
        return bootstrap.standard_error(logs, self.num_clusters)

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
    """Return factors around the ratio of two slices' q-quantiles, a over b, of the same trajectories.

    The same clusters are resampled for both, so what a trajectory does to both cancels.

    Args:
        a: |x| by trajectory of the numerator.
        b: |x| by trajectory of the denominator.
        q: quantile in [0, 1].
        level: level of the interval.
        replicates: number of replicates.
        seed: seed of the resampling.

    Returns:
        (low, high) factors; (nan, nan) where one interval has none.

    Raises:
        SummaryError: the numbers of clusters differ.

    Example:
        low, high = ratio_interval(post_tool, text, 0.95)
    """
    if a.clusters != b.clusters:
        raise SummaryError(f"cannot pair {a.clusters} clusters with {b.clusters}")
    counts = [a.cluster_counts(), b.cluster_counts()]
    (top,), (bottom,) = bootstrap.log_quantiles(counts, GRID, [q], replicates, seed)
    return bootstrap.factors(top - bottom, min(a.num_clusters, b.num_clusters), level)
