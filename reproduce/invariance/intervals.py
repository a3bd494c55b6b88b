"""Intervals over seeds, and the test of a two-way layout. Shapes: S seeds, F factors (batch sizes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reproduce.invariance.arms import FACTORS
from trimtab.stats.student_t import t_quantile

__all__ = ["LEAST", "Interval", "effect_p", "gaps", "interval", "residual_square"]

LEAST = 2  # seeds of an interval


@dataclass(frozen=True)
class Interval:
    """Mean over n seeds and its 95 % t interval; no ends with fewer than two seeds."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        ends = "no interval" if self.low is None else f"95 % {self.low:.3g} to {self.high:.3g}"
        return f"{self.mean:.3g} ({ends}; n = {self.n})"


def interval(values: Sequence[float] | np.ndarray, level: float = 0.05) -> Interval | None:
    """None of no values.

    >>> str(interval([1.0, 2.0, 3.0]))  # 2 +- 4.303 / sqrt(3)
    '2 (95 % -0.484 to 4.48; n = 3)'
    """
    found = np.asarray(values, float)
    if not found.size:
        return None
    mean = float(found.mean())
    if found.size < LEAST:
        return Interval(mean, None, None, found.size)
    half = t_quantile(level / 2, found.size - 1) * float(found.std(ddof=1)) / math.sqrt(found.size)
    return Interval(mean, mean - half, mean + half, found.size)


def residual_square(cells: np.ndarray) -> float:
    """Residual mean square of an (S, F) layout, (S - 1)(F - 1) degrees of freedom."""
    rest = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0, keepdims=True) + cells.mean()
    return float((rest**2).sum() / ((cells.shape[0] - 1) * (cells.shape[1] - 1)))


def effect_p(cells: np.ndarray) -> float:
    """p of "the batch size has no effect" on an (S, 3) layout, seeds as blocks: P(F(2, d) > f) = (1 + 2 f / d)^(-d / 2).

    NaN with fewer than two seeds, or where nothing varies.
    """
    seeds, sizes = cells.shape
    if seeds < LEAST or sizes != 3:
        return math.nan
    between = seeds * float(np.var(cells.mean(axis=0), ddof=1))
    rest, freedom = residual_square(cells), 2 * (seeds - 1)
    if rest == 0:
        return math.nan if between == 0 else 0.0
    return float((1 + 2 * between / rest / freedom) ** (-freedom / 2))


def gaps(cells: np.ndarray) -> dict[tuple[float, float], Interval]:
    """Paired differences of areas between every two batch sizes (larger minus smaller), intervals of 95 % together (Bonferroni)."""
    pairs = [(a, b) for a in range(len(FACTORS)) for b in range(a + 1, len(FACTORS))]
    found = {}
    for a, b in pairs:
        each = interval(cells[:, b] - cells[:, a], 0.05 / len(pairs))
        if each is not None:
            found[FACTORS[a], FACTORS[b]] = each
    return found
