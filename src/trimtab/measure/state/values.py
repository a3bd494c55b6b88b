"""What a measure returns: a number with its key, before slice, window and step are written on it.

Readings that are made at one step from something a caller computed, not from the tokens of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from trimtab.measure.state.slice_state import SliceState
from trimtab.types import Reading, Window


class Value(NamedTuple):
    """`n` is the number of tokens (or sequences, for sequence quantities) the value rests on."""

    key: str
    value: float
    n: int
    low: float = float("nan")
    high: float = float("nan")
    reason: str = ""


Measure = Callable[[SliceState], Iterator[Value]]
"""A measure reads one slice's state and yields what can be computed from it; nothing where the summaries it
needs are absent."""


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


def step_readings(step: int, values: Iterable[tuple[str, Value, Mapping[str, int]]]) -> list[Reading]:
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
        for name, value, excluded in values
    ]
