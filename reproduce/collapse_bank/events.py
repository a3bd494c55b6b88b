"""When a run has collapsed, and whether it had learned before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Event", "event_of", "smoothed"]

WINDOW, FALLEN, RECOVERED, LEARNED = 8, 0.70, 0.85, 0.80
AFTER = 30
"""Steps a run goes on after its event, to show that it does not recover."""


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
    """Return the event of a run: the first step whose 8-step mean is under 70 % of its best so far, and never comes back above 85 % of it.

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


def finished_falling(rewards: Sequence[float]) -> bool:
    """Return whether a run's event lies far enough back to end it."""
    event = event_of(rewards)
    return event is not None and len(rewards) - event.step >= AFTER


def has_learned(event: Event, reachable: float) -> bool:
    """Return whether the best before the fall was at least 80 % of the best its healthy relative reached."""
    return event.best >= LEARNED * reachable
