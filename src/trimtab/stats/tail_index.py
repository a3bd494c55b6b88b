"""Tail indices and their intervals: Hill's estimator over a sweep, and replicates of a histogram's tail by trajectory."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats import bootstrap
from trimtab.stats.clusters import GRID, ClusterTail
from trimtab.stats.log_sketch import LogSketch
from trimtab.stats.pareto import LEAST_DRAWS, LEAST_TAIL, UNDERFLOW, gpd_shapes, pareto_tail_size

__all__ = ["HillFit", "TailReplicates", "hill", "hill_sweep", "mean_exp_factor", "tail_replicates"]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


class HillFit(NamedTuple):
    """The median over the sweep, the least and greatest of it, the sweep's largest m, and what to know ("" is nothing)."""

    hill: float
    least: float
    greatest: float
    tail_size: int
    reason: str


@lru_cache(maxsize=64)
def hill_sweep(n: int) -> Int64:
    """The m over which Hill's estimate is swept: up to 8 numbers, evenly spaced in log m, from M/4 (at least 5) to
    M = `pareto_tail_size(n)`.

    >>> hill_sweep(10_000).tolist()
    [75, 91, 111, 136, 166, 202, 246, 300]
    """
    largest = pareto_tail_size(n)
    smallest = min(largest, max(LEAST_TAIL, largest // 4))
    spaced = smallest * (largest / max(1, smallest)) ** (np.arange(8) / 7.0)
    sweep = np.unique(np.round(spaced).astype(np.int64)) if largest else np.zeros(0, np.int64)
    sweep.setflags(write=False)
    return sweep


def hill(log_values_desc: npt.ArrayLike, n: int) -> HillFit:
    """How heavy is the upper tail of n positive values, of which the largest logarithms are given, descending?

    H(m) = mean of log(x_(i) / x_(m+1)) over the m largest (Hill 1975): 0.5 and above, no finite variance; 1 and
    above, no mean. One m is arbitrary and H(m) is biased off a pure power law, so the answer is the median over
    `hill_sweep(n)`, and a sweep whose ends differ by more than a factor 2 is called unstable in `reason`. Give
    `pareto_tail_size(n)` + 1 values; -inf (zeros) at the end is allowed. Ties count as log 1 = 0. nan with a reason:
    fewer than 25 values in all, a tail that reaches zeros or is not given before m = 5, or all equal.
    SummaryError on nan, +inf, another order, or more values than n.

    >>> x = -0.5 * np.log((np.arange(10_000) + 0.5) / 10_000)  # Pareto of index 0.5
    >>> round(hill(x, 10_000).hill, 2)
    0.5
    >>> hill([0.0] * 100, 100).reason
    'equal values'
    """
    values = np.asarray(log_values_desc, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any() or np.isposinf(values).any():
        raise SummaryError(
            "tail logarithms must be (M,) without nan or +inf; count and leave those out first"
        )
    if np.any(values[1:] > values[:-1]) or values.size > n:
        raise SummaryError(f"tail logarithms must be in descending order and no more than n = {n}")
    missing = float("nan"), float("nan"), float("nan"), 0
    if n < LEAST_DRAWS:
        return HillFit(*missing, f"{n} values, an estimate needs {LEAST_DRAWS}")
    positive = int(np.isfinite(values).sum())
    sweep = hill_sweep(n)
    usable = sweep[sweep < positive]
    if usable.size == 0:
        return HillFit(*missing, f"only {positive} tail values above 0, an estimate needs {sweep[0] + 1}")
    usable = usable[values[usable] < values[0]]  # a cutoff equal to the largest says nothing
    if usable.size == 0:
        return HillFit(*missing, "equal values")
    mean = np.cumsum(values[:positive])[usable - 1] / usable - values[usable]
    least, greatest = float(mean.min()), float(mean.max())
    reason = f"unstable: {least:.3g} to {greatest:.3g} over the sweep" if greatest > 2.0 * least else ""
    return HillFit(float(np.median(mean)), least, greatest, int(usable[-1]), reason)


class TailReplicates(NamedTuple):
    """A histogram's buckets and what multiplies their counts in every bootstrap replicate of its trajectories.

    `values` (M,) are bucket middles, descending, `number` (M,) their counts; `at` (M,) says which of the coarser buckets
    holds each, and `factors` (1 + R, K) multiply those, the data first; `groups` is how many clusters were drawn from.
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
        cuts = np.unique([self._top(int(m)) for m in hill_sweep(int(self.number.sum()))]).astype(np.int64)
        cuts = cuts[cuts < np.isfinite(logarithms).sum()]
        if cuts.size == 0:
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
        """Half the 95 % interval of the tail shape of `sizes` (M,), one a bucket, descending; the cutoff is held fixed."""
        n = int(self.number.sum())
        cut = self._top(pareto_tail_size(n))
        if n < LEAST_DRAWS or cut < 2 or cut >= sizes.size:
            return float("nan")
        above = (sizes[:cut] - sizes[cut])[::-1] / (sizes[0] - sizes[cut])
        return bootstrap.margin(
            gpd_shapes(np.maximum(above, UNDERFLOW), self._weights(cut)[:, ::-1]), self.groups
        )

    def _weights(self, cut: int) -> Float64:
        """(1 + R, cut) counts of the largest `cut` buckets."""
        return np.asarray(self.factors[:, self.at[:cut]] * self.number[:cut])

    def _top(self, number: int) -> int:
        """How many buckets hold at least `number` of the largest values."""
        return min(self.number.size, int(np.searchsorted(np.cumsum(self.number), number)) + 1)


def tail_replicates(
    sketch: LogSketch,
    sizes: ClusterTail,
    rises: ClusterTail | None = None,
    replicates: int = 100,
    seed: int = 0,
) -> TailReplicates:
    """Buckets of |x|, or of x where `rises` is given, of one stream whose |x| by trajectory `sizes` holds.

    `rises` is the same as `sizes` of x > 0 alone. Whole trajectories are drawn; inside one bucket of `ClusterTail` (a
    quarter of an octave) the finer buckets keep their shares, which leaves the margins of k-hat and Hill 10 to 30 % too
    narrow on clustered data (tests/stats/test_tail_index.py).
    """
    values, number = sketch.buckets("size" if rises is None else "upper")
    counts, at = _by_cluster(values, sizes, rises)
    return TailReplicates(
        values, number, at, bootstrap.bucket_factors(counts, replicates, seed)[0], sizes.num_clusters
    )


def mean_exp_factor(
    sketch: LogSketch,
    power: float,
    sizes: ClusterTail,
    rises: ClusterTail,
    replicates: int = 200,
    seed: int = 0,
) -> float:
    """f, for the 95 % interval from m/f to m f around the mean m of e^(power x); arguments as in `tail_replicates`."""
    values, number = sketch.buckets("upper")
    counts, at = _by_cluster(values, sizes, rises)
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


def _by_cluster(values: Float64, sizes: ClusterTail, rises: ClusterTail | None) -> tuple[Int64, Int64]:
    """(clusters, K) counts, of x <= 0 before those of x > 0 where signed, and the column of each value."""
    counts, at = sizes.cluster_counts(), GRID.ids(values.astype(np.float32)).astype(np.int64)
    if rises is None:
        return counts, at
    up = rises.cluster_counts()
    return np.concatenate((counts - up, up), axis=1), at + np.where(values > 0.0, GRID.num_buckets, 0)
