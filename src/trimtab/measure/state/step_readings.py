"""Readings that are made at one step from something a caller computed, not from the tokens of a window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimtab.measure.state.types import Value
from trimtab.types import Reading, Window

_RECORDED = (
    "lagged_drift/",
    "gradient/",
    "distinguish/retrieval_accuracy",
    "distinguish/mutual_information",
)


def recorded(key: str) -> bool:
    """Is this a reading that no slice state can give again, so that views must take it as it was written?

    >>> recorded("gradient/snr"), recorded("drift/p95")
    (True, False)
    """
    return key.startswith(_RECORDED)


def step_readings(step: int, found: Iterable[tuple[str, Value, Mapping[str, int]]]) -> list[Reading]:
    """Readings at one step of (slice, value, excluded); their `n` counts trajectories."""
    return [
        Reading(
            key=value.key,
            step=step,
            window=Window(step, step),
            slice=name,
            value=value.value,
            n_tokens=value.n,
            n_trajectories=value.n,
            excluded=excluded,
            status="not observed" if value.reason and value.value != value.value else "ok",
            reason=value.reason,
        )
        for name, value, excluded in found
    ]
