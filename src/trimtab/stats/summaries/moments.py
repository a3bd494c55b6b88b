"""Moments: count, mean, variance and extremes of plain values (rewards, entropies, lengths, seconds)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.stats.summaries import validation as inputs
from trimtab.stats.summaries.base import Summary


class Moments(Summary):
    """What are the mean, spread and extremes of a stream, and how many values could not enter them?

    float64 sums of x and x^2; nan, +inf and -inf are counted apart and left out. The unit is the values' own. Empty
    gives nan. The variance is the population's (divided by n), with absolute error about 1e-16 times the mean square.

    >>> rewards = Moments()
    >>> rewards.update([0.0, 1.0, 1.0, np.inf])
    >>> rewards.count, rewards.num_posinf, round(rewards.mean(), 4), round(rewards.variance(), 4), rewards.max
    (3, 1, 0.6667, 0.2222, 1.0)
    """

    kind: ClassVar[bytes] = b"MO"

    def __init__(self) -> None:
        self._count = np.zeros(1, dtype=np.int64)
        self._non_finite = np.zeros((1, 3), dtype=np.int64)
        self._sums = np.zeros(2)  # x, x^2
        self._extremes = np.array([-np.inf, -np.inf])  # max x, max -x

    def update(self, values: npt.ArrayLike) -> None:
        """Add values (N,). SummaryError on another shape."""
        x = inputs.finite(inputs.as_wide_values(values), self._non_finite)
        if x.size == 0:
            return
        self._count += x.size
        with np.errstate(over="ignore"):
            self._sums += (x.sum(), np.square(x).sum())
        np.maximum(self._extremes, (x.max(), -x.min()), out=self._extremes)

    @classmethod
    def by_row(cls, values: npt.ArrayLike, rows: npt.ArrayLike, num_rows: int) -> list[Moments]:
        """The moments of each of `num_rows` rows, in one pass; `rows` (N,) are integers in [0, num_rows).

        >>> [row.count for row in Moments.by_row([1.0, 2.0, 3.0], [0, 2, 2], 3)]
        [1, 0, 2]
        """
        x = inputs.as_wide_values(values)
        at = inputs.as_rows(rows, x.size, inputs.at_least_one("num_rows", num_rows))
        out = [cls() for _ in range(num_rows)]
        if at is None or not x.size:
            out[0].update(x)
            return out
        order = np.argsort(at, kind="stable")
        ends = np.cumsum(np.bincount(at, minlength=num_rows)).tolist()
        x, start = x[order], 0
        for row, end in zip(out, ends, strict=True):
            if end > start:
                row.update(x[start:end])
            start = end
        return out

    @property
    def count(self) -> int:
        """How many finite values?"""
        return int(self._count[0])

    @property
    def num_nan(self) -> int:
        """How many were nan?"""
        return int(self._non_finite[0, 0])

    @property
    def num_posinf(self) -> int:
        """How many were +inf?"""
        return int(self._non_finite[0, 1])

    @property
    def num_neginf(self) -> int:
        """How many were -inf?"""
        return int(self._non_finite[0, 2])

    @property
    def max(self) -> float:
        """Largest finite value, exact."""
        return float(self._extremes[0]) if self.count else float("nan")

    @property
    def min(self) -> float:
        """Smallest finite value, exact."""
        return -float(self._extremes[1]) if self.count else float("nan")

    def mean(self) -> float:
        """Sum over count."""
        return float(self._sums[0]) / self.count if self.count else float("nan")

    def variance(self) -> float:
        """Mean of squares less the square of the mean, never below 0."""
        if not self.count:
            return float("nan")
        return max(0.0, float(self._sums[1]) / self.count - self.mean() ** 2)

    def _parameters(self) -> tuple[int, ...]:
        return ()

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._count, self._non_finite, self._sums, self._extremes)

    def _absorb(self, other: Moments) -> None:
        self._count += other._count
        self._non_finite += other._non_finite
        self._sums += other._sums
        np.maximum(self._extremes, other._extremes, out=self._extremes)
