"""How far can a tail index be trusted, when tokens of one trajectory are not independent? Replicates of a
histogram's tail."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.stats.generalized_pareto import LEAST_DRAWS, UNDERFLOW, gpd_shapes, pareto_tail_size
from trimtab.stats.histograms import bootstrap
from trimtab.stats.summaries.cluster_tail import GRID, ClusterTail
from trimtab.stats.summaries.log_sketch import LogSketch
from trimtab.stats.tail_index import hill_sweep
from trimtab.typing import Float64, Int64


class TailReplicates(NamedTuple):
    """A histogram's buckets and what multiplies their counts in every bootstrap replicate of its
    trajectories.

    `values` (M,) are bucket middles, descending, `number` (M,) their counts; `at` (M,) says which of the
    coarser buckets holds each, and `factors` (1 + R, K) multiply those, the data first; `groups` is how many
    clusters were drawn from.
    """

    values: Float64
    number: Int64
    at: Int64
    factors: Float64
    groups: int

    def mirrored(self) -> TailReplicates:
        """The same of -x."""
        return self._replace(values=-self.values[::-1], number=self.number[::-1], at=self.at[::-1])

    def hill_factor(self, logarithms: Float64) -> float:
        """f, for the 95 % interval from H/f to H f around the median of Hill's sweep; cutoffs are held fixed.

        `logarithms` (M,) are log x of each bucket. nan where there is nothing to estimate, or one cluster.
        """
        tops = self._tops(hill_sweep(int(self.number.sum())))
        cuts = np.array(sorted(set(tops.tolist())), dtype=np.int64)
        cuts = cuts[cuts < np.isfinite(logarithms).sum()]
        if cuts.size == 0 or self._too_coarse(int(cuts[-1])):
            return float("nan")
        weights, logs = self._weights(int(cuts[-1])), logarithms[: cuts[-1]]
        above = np.arange(cuts[-1])[:, None] < cuts
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (weights @ (above * (logs[:, None] - logarithms[cuts]))) / (
                weights @ above.astype(np.float64)
            )
            mean.sort(axis=1)
            middle = (mean[:, (cuts.size - 1) // 2] + mean[:, cuts.size // 2]) / 2.0
            return float(np.exp(bootstrap.margin(np.log(middle), self.groups)))

    def gpd_margin(self, sizes: Float64) -> float:
        """Half the 95 % interval of the tail shape of `sizes` (M,), one a bucket, descending; the cutoff is
        held fixed."""
        n = int(self.number.sum())
        cut = int(self._tops(np.array([pareto_tail_size(n)]))[0])
        if n < LEAST_DRAWS or cut < 2 or cut >= sizes.size or self._too_coarse(cut):
            return float("nan")
        above = (sizes[:cut] - sizes[cut])[::-1] / (sizes[0] - sizes[cut])
        return bootstrap.margin(
            gpd_shapes(np.maximum(above, UNDERFLOW), self._weights(cut)[:, ::-1]), self.groups
        )

    def _too_coarse(self, cut: int) -> bool:
        """Do the largest `cut` buckets lie in fewer than 4 of the coarser ones? Replicates could then hardly
        differ."""
        return len(set(self.at[:cut].tolist())) < 4

    def _weights(self, cut: int) -> Float64:
        """(1 + R, cut) counts of the largest `cut` buckets."""
        return np.asarray(self.factors[:, self.at[:cut]] * self.number[:cut])

    def _tops(self, numbers: Int64) -> Int64:
        """How many buckets hold at least each of `numbers` of the largest values."""
        return np.minimum(self.number.size, np.searchsorted(np.cumsum(self.number), numbers) + 1)


def tail_replicates(
    sketch: LogSketch,
    sizes: ClusterTail,
    rises: ClusterTail | None = None,
    replicates: int = 100,
    seed: int = 0,
) -> TailReplicates:
    """Return bootstrap replicates of the tail of one stream, by trajectory.

    Whole trajectories are resampled. Inside one bucket of `ClusterTail` (a quarter of an octave) the finer
    buckets keep their fractions. That leaves the margins of k-hat and Hill 10 to 30 % too narrow on clustered
    data (tests/stats/test_tail_index.py). A tail within fewer than 4 of those buckets gets none.

    Args:
        sketch: histogram of x, one row.
        sizes: |x| by trajectory.
        rises: the same of x > 0 alone; with it the buckets are of x, else of |x|.
        replicates: number of replicates.
        seed: seed of the resampling.

    Returns:
        The buckets and the factor of each in each replicate.

    Example:
        margin = tail_replicates(sketch, clusters).gpd_margin(values)
    """
    values, number = sketch.buckets("size" if rises is None else "upper")
    counts, at = _by_cluster(values, number, sizes, rises)
    factors = bootstrap.bucket_factors(counts, replicates, seed)
    return TailReplicates(values, number, at, factors, int(np.count_nonzero(counts.sum(axis=1))))


def mean_exp_factor(
    sketch: LogSketch,
    power: float,
    sizes: ClusterTail,
    rises: ClusterTail,
    replicates: int = 200,
    seed: int = 0,
) -> float:
    """Return f, for the 95 % interval from m / f to m f around the mean m of e^(power x).

    Args:
        sketch: histogram of x, one row.
        power: power of e^x.
        sizes: |x| by trajectory.
        rises: the same of x > 0 alone.
        replicates: number of replicates.
        seed: seed of the resampling.

    Returns:
        The factor, at least 1; nan when the stream is empty.

    Example:
        factor = mean_exp_factor(sketch, 2.0, clusters, rises)
    """
    values, number = sketch.buckets("upper")
    counts, at = _by_cluster(values, number, sizes, rises)
    total, occupied = counts.sum(axis=0), np.flatnonzero(counts.sum(axis=1))
    if occupied.size == 0:
        return float("nan")
    size = power * values
    mass = np.bincount(at, number * np.exp(size - size.max(initial=-np.inf)), total.size) / np.maximum(
        total, 1
    )
    drawn = bootstrap.draw(occupied.size, replicates, seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(drawn @ (counts[occupied] @ mass)) - np.log(drawn @ counts[occupied].sum(axis=1))
    return float(np.exp(bootstrap.margin(logs, occupied.size)))


def _by_cluster(
    values: Float64, number: Int64, sizes: ClusterTail, rises: ClusterTail | None
) -> tuple[Int64, Int64]:
    """(clusters, K) counts, of x <= 0 before those of x > 0 where signed, and the column of each value.

    All zero, which gives no interval, where `rises` lacks some of the stream: states of older versions had
    none.
    """
    counts, at = sizes.cluster_counts(), GRID.ids(values.astype(np.float32)).astype(np.int64)
    if rises is None:
        return counts, at
    up, at = rises.cluster_counts(), at + np.where(values > 0.0, GRID.num_buckets, 0)
    if up.sum() < number[values > 0.0].sum():
        return np.zeros((sizes.clusters, 2 * GRID.num_buckets), np.int64), at
    return np.concatenate((counts - up, up), axis=1), at
