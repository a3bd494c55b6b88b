"""Exponentially weighted mean of a step series over few steps, with its standard error."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.typing import Float64


class Smoothed(NamedTuple):
    """A weighted mean over the last steps. `error`: its standard error, NaN where it is unknown."""

    value: float
    error: float
    num_steps: int


class Ewma:
    """Weights a value of k steps ago by decay**k, divided by the sum of the weights of those there are.

    Values older than `max_steps` do not count, so an infinite value passes. The error takes the steps'
    errors as independent; it says nothing of a level that moves between steps.

    Args:
        decay: weight of a step relative to the next one, in (0, 1].
        max_steps: steps that count.

    Example:
        >>> ewma = Ewma(decay=0.5)
        >>> for value in (1.0, 4.0):
        ...     ewma.update(value, error=0.3)
        >>> ewma.get().value, round(ewma.get().error, 4)
        (3.0, 0.2236)
    """

    def __init__(self, decay: float = 0.75, max_steps: int = 12) -> None:
        if not 0.0 < decay <= 1.0 or max_steps < 1:
            raise ValueError(f"decay must be in (0, 1] and max_steps at least 1, got {decay} and {max_steps}")
        self.decay = decay
        self._points: deque[tuple[float, float]] = deque(maxlen=max_steps)

    def update(self, value: float, error: float = math.nan) -> None:
        """Add the next step; a NaN value is a step without one, which ages the others."""
        self._points.append((value, error))

    def weights(self) -> Float64:
        """Weights of the steps kept, oldest first; zero for a step without a value. They sum to 1."""
        ages = np.arange(len(self._points))[::-1]
        weights = np.where([math.isnan(value) for value, _ in self._points], 0.0, self.decay**ages)
        total = weights.sum()
        return np.asarray(weights / total if total else weights, np.float64)

    def get(self) -> Smoothed:
        """Return the weighted mean and its standard error; NaN before the first value."""
        weights = self.weights()
        used = weights > 0
        if not used.any():
            return Smoothed(math.nan, math.nan, 0)
        values, errors = np.array([point for point, use in zip(self._points, used, strict=True) if use]).T
        value = float((weights[used] * values).sum())
        return Smoothed(value, combined_error(weights[used], errors), int(np.count_nonzero(used)))


def combined_error(weights: Sequence[float] | Float64, errors: Sequence[float] | Float64) -> float:
    """Return the standard error of a sum of independent terms with these weights.

    Unknown errors (NaN) are taken as large as the known ones, in mean square over the weights; NaN where none
    is known.

    >>> round(combined_error([0.5, 0.5], [0.2, math.nan]), 4)
    0.1414
    """
    squares, errors = np.square(np.asarray(weights, np.float64)), np.asarray(errors, np.float64)
    known = ~np.isnan(errors) & (squares > 0)
    if not known.any():
        return math.nan
    variance = (squares[known] * errors[known] ** 2).sum() * squares.sum() / squares[known].sum()
    return float(math.sqrt(variance))
