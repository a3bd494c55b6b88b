"""Moments of plain values and of weights that arrive as logarithms."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.stats.histograms import exponential_sums as exp_sums
from trimtab.stats.summaries import input_checks as inputs
from trimtab.stats.summaries.base import RowSummary


class Moments(RowSummary):
    """What are the mean, spread and extremes of a stream, and how many values could not enter them?

    float64 sums of x and x^2; nan, +inf and -inf are counted apart and left out. The unit is the values' own.
    Empty gives nan. The variance is the population's (divided by n), with absolute error about 1e-16 times
    the mean square.

    >>> rewards = Moments()
    >>> rewards.update([0.0, 1.0, 1.0, np.inf])
    >>> rewards.count, rewards.num_posinf, round(rewards.mean(), 4), round(rewards.variance(), 4), rewards.max
    (3, 1, 0.6667, 0.2222, 1.0)
    """

    kind: ClassVar[bytes] = b"MO"
    adds_up: ClassVar[bool] = True

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

    def absorb_floats(self, values: npt.NDArray[np.float64]) -> None:
        """Merge sums and extremes (M, 4) of M summaries into this one, which has none yet."""
        self._sums += values[:, :2].sum(axis=0)
        np.maximum(self._extremes, values[:, 2:].max(axis=0), out=self._extremes)

    def _absorb(self, other: Moments) -> None:
        self._count += other._count
        self._non_finite += other._non_finite
        self._sums += other._sums
        np.maximum(self._extremes, other._extremes, out=self._extremes)


class LogMoments(RowSummary):
    """Of a stream of log-weights l (nats): how many of n weights w = e^l still count, and what are E[w],
    E[w^2]?

    Sequence-level log-weights reach thousands of nats; e^l is summed under a shift, so nothing overflows and
    nothing is clamped (a clamped ESS has a floor and cannot alarm). nan, +inf and -inf are counted apart and
    left out: a weight of zero is not a sample here. Empty gives nan. Kish 1965: ESS = (sum w)^2 / sum w^2;
    lognormal weights of log-sd s give ESS / n = exp(-s^2).

    >>> weights = LogMoments()
    >>> weights.update(np.log([1.0, 1.0, 2.0]) + 5000.0)
    >>> weights.count, round(weights.ess(), 4), round(weights.log_mean() - 5000.0, 4)
    (3, 2.6667, 0.2877)
    """

    kind: ClassVar[bytes] = b"LM"
    adds_up: ClassVar[bool] = True

    def __init__(self) -> None:
        self._count = np.zeros(1, dtype=np.int64)
        self._non_finite = np.zeros((1, 3), dtype=np.int64)
        self._sums, self._low, self._high = exp_sums.empty(1)

    def update(self, log_weights: npt.ArrayLike) -> None:
        """Add log-weights (N,) in nats, summed as float64. SummaryError on another shape."""
        values = inputs.finite(inputs.as_wide_values(log_weights), self._non_finite)
        if values.size == 0:
            return
        low, high = np.array([values.min()]), np.array([values.max()])
        up, _, down = exp_sums.shifts(low, high)[0]
        grown, falling = np.exp(values - up), np.exp(-values - down)
        sums = np.array([[grown.sum(), np.square(grown).sum(), falling.sum()]])
        self._count += values.size
        exp_sums.absorb(self._state(), (sums, low, high))

    @property
    def max(self) -> float:
        """Largest log-weight, exact."""
        return float(self._high[0]) if self.count else float("nan")

    @property
    def min(self) -> float:
        """Smallest log-weight, exact."""
        return float(self._low[0]) if self.count else float("nan")

    def log_mean(self) -> float:
        """log E[w]; 0 for weights that are ratios of the sampler's own normalised policy, up to noise."""
        return self._log_mean(1)

    def log_mean_square(self) -> float:
        """log E[w^2]; log(1 + chi2) where E[w] = 1."""
        return self._log_mean(2)

    def ess_frac(self) -> float:
        """Kish ESS / n, in (0, 1]; a shift of all log-weights does not change it."""
        return (
            min(1.0, float(np.exp(2.0 * self.log_mean() - self.log_mean_square()))) if self.count else np.nan
        )

    def ess(self) -> float:
        """Kish (sum w)^2 / sum w^2, in samples, in [1, n]."""
        return self.ess_frac() * self.count

    def _log_mean(self, power: int) -> float:
        if not self.count:
            return float("nan")
        total = exp_sums.log_sum(self._sums[0], float(self._low[0]), float(self._high[0]), power)
        return total - float(np.log(self.count))

    def _state(self) -> exp_sums.State:
        return self._sums, self._low, self._high

    def _parameters(self) -> tuple[int, ...]:
        return ()

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._count, self._non_finite, self._sums, self._low, self._high)

    def absorb_floats(self, values: npt.NDArray[np.float64]) -> None:
        """Merge sums and extremes (M, 5) of M summaries into this one, which has none yet."""
        exp_sums.absorb_many(self._state(), (values[:, None, :3], values[:, 3:4], values[:, 4:]))

    def _absorb(self, other: LogMoments) -> None:
        self._count += other._count
        self._non_finite += other._non_finite
        exp_sums.absorb(self._state(), other._state())
