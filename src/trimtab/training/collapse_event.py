"""The loss of a run's reward: the event of docs/early-warning-test.md and of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["WINDOW", "Event", "event_of", "smoothed"]

WINDOW, FALLEN, RECOVERED = 8, 0.70, 0.85


@dataclass(frozen=True)
class Event:
    """A collapse: the step at which the 8-step mean reward had lost 30 % of its best, for good."""

    step: int
    best: float
    best_step: int


def smoothed(rewards: Sequence[float]) -> np.ndarray:
    """Return the mean of each 8 steps, nan for the first seven."""
    values = np.asarray(rewards, float)
    means = np.full(values.size, np.nan)
    if values.size >= WINDOW:
        means[WINDOW - 1 :] = np.convolve(values, np.ones(WINDOW) / WINDOW, "valid")
    return means


def event_of(rewards: Sequence[float], first_step: int = 1) -> Event | None:
    """Return the first step whose 8-step mean is under 70 % of its best so far, for good; None without one.

    For good: it never comes back above 85 % of that best.

    Example:
        >>> event_of([1.0] * 20 + [0.0] * 20).step
        23
        >>> event_of([1.0] * 20 + [0.0] * 5 + [1.0] * 20) is None
        True
    """
    means = smoothed(rewards)
    best, best_index = -np.inf, 0
    for index in range(WINDOW - 1, means.size):
        if means[index] < FALLEN * best and np.nanmax(means[index:]) <= RECOVERED * best:
            return Event(index + first_step, float(best), best_index + first_step)
        if means[index] > best:
            best, best_index = float(means[index]), index
    return None
