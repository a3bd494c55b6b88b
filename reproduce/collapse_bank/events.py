"""When a run has collapsed, and whether it had learned before."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.training.collapse_event import Event, event_of, smoothed

__all__ = ["Event", "event_of", "finished_falling", "has_learned", "smoothed"]

LEARNED = 0.80
AFTER = 30
"""Steps a run goes on after its event, to show that it does not recover."""


def finished_falling(rewards: Sequence[float]) -> bool:
    """Return whether a run's event lies far enough back to end it."""
    event = event_of(rewards)
    return event is not None and len(rewards) - event.step >= AFTER


def has_learned(event: Event, reachable: float) -> bool:
    """Return whether the best before the fall was at least 80 % of the best its healthy relative reached."""
    return event.best >= LEARNED * reachable
