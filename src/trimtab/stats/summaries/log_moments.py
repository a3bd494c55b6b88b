"""LogMoments: effective sample size of importance weights that arrive as logarithms of any magnitude."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.stats.histograms import exponential_sums as exp_sums
from trimtab.stats.summaries import validation as inputs
from trimtab.stats.summaries.base import Summary


class LogMoments(Summary):
    """Of a stream of log-weights l (nats): how many of n weights w = e^l still count, and what are E[w], E[w^2]?

    Sequence-level log-weights reach thousands of nats; e^l is summed under a shift, so nothing overflows and nothing
    is clamped (a clamped ESS has a floor and cannot alarm). nan, +inf and -inf are counted apart and left out: a
    weight of zero is not a sample here. Empty gives nan.
    Kish 1965: ESS = (sum w)^2 / sum w^2; lognormal weights of log-sd s give ESS / n = exp(-s^2).

    >>> weights = LogMoments()
    >>> weights.update(np.log([1.0, 1.0, 2.0]) + 5000.0)
    >>> weights.count, round(weights.ess(), 4), round(weights.log_mean() - 5000.0, 4)
    (3, 2.6667, 0.2877)
    """

    kind: ClassVar[bytes] = b"LM"

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
    def count(self) -> int:
        """How many finite log-weights?"""
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
        """How many were -inf (weight zero)?"""
        return int(self._non_finite[0, 2])

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

    def _absorb(self, other: LogMoments) -> None:
        self._count += other._count
        self._non_finite += other._non_finite
        exp_sums.absorb(self._state(), other._state())
