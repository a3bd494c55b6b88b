"""Rules on whole series at once, as a metrics log holds them: the events for the alarm log, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.detect.alarm_log import RECHECK
from trimtab.detect.detectors.base import Decision, Detector, Scanner, Transitions, walk
from trimtab.detect.detectors.composite_reading import CompositeReading
from trimtab.detect.rules.rule import Rule
from trimtab.types import Reading, Window

Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]

Series = tuple[Sequence[int] | npt.NDArray[np.int64], Sequence[float] | npt.NDArray[np.float64]]
"""Steps, in order, and the values there."""


class Event(NamedTuple):
    """A transition of a rule; without a decision, a moment at which a suppression is checked again."""

    step: int
    order: int
    rule: Rule
    reading: Reading
    decision: Decision | None


def columns_of(series: Mapping[tuple[str, str], Series]) -> dict[tuple[str, str], Columns]:
    """The series as arrays."""
    return {
        key: (np.asarray(steps, dtype=np.int64), np.asarray(values, dtype=np.float64))
        for key, (steps, values) in series.items()
    }


def joint_series(
    joints: Mapping[str, CompositeReading], series: Mapping[tuple[str, str], Columns]
) -> dict[tuple[str, str], Columns]:
    """Joint readings of whole series."""
    composites = {(f"joint/{family}", "all"): joint.scan(series) for family, joint in joints.items()}
    return {key: one for key, one in composites.items() if one[0].size}


def scan(detector: Detector, steps: Any, values: Any) -> tuple[Transitions, Decision]:
    """Return the transitions of a detector that has seen nothing, and its last decision."""
    if isinstance(detector, Scanner):
        return detector.scan(steps, values), detector.now
    return walk(detector, steps, values)


def events_of(rule: Rule, order: int, name: str, series: Columns, transitions: Transitions) -> list[Event]:
    """Return the transitions with their readings, and the moments at which a suppression is checked again."""
    steps, values = series
    events: list[Event] = []

    def event(i: int, decision: Decision | None) -> Event:
        step = int(steps[i])
        return Event(
            step,
            order,
            rule,
            Reading(rule.key, step, Window(step, step), name, float(values[i]), 0, 0),
            decision,
        )

    for n, (i, decision) in enumerate(transitions):
        events.append(event(i, decision))
        if (rule.suppressions or rule.members) and decision.fired:
            end = transitions[n + 1][0] if n + 1 < len(transitions) else steps.size
            while (i := int(np.searchsorted(steps, steps[i] + RECHECK))) < end:
                events.append(event(i, None))
    return events
