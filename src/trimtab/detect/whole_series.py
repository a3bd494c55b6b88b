"""Rules on whole series at once, of a metrics log or a stored run: the events for the alarm log, in order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.detect.alarm_log import RECHECK
from trimtab.detect.detectors.base import Decision, Detector, Scanner, Transitions, walk
from trimtab.detect.detectors.composite_reading import CompositeReading
from trimtab.detect.reading_columns import ReadingColumn
from trimtab.detect.rules.rule import Rule
from trimtab.types import Reading

Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]

Series = tuple[Sequence[int] | npt.NDArray[np.int64], Sequence[float] | npt.NDArray[np.float64]]
"""Steps, in order, and the values there."""

_FEW = 64  # values that a stream judges as fast as a scan does


class Event(NamedTuple):
    """A transition of a rule; without a decision, a moment at which a suppression is checked again."""

    step: int
    order: int
    position: int
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


@dataclass(eq=False)
class Judged:
    """A rule on the values of one slice as its detector takes them."""

    rule: Rule
    order: int  # of the rule among the rules of a step
    column: ReadingColumn
    values: npt.NDArray[np.float64]  # in the detector's unit
    errors: list[float] | None = None  # their standard errors; None where no value has one

    def scan(self, detector: Detector) -> tuple[Transitions, Decision]:
        """Return the transitions of a detector that has seen nothing, and its last decision."""
        blind_to_errors = isinstance(detector, Scanner) and not detector.takes_errors
        if (self.errors and not blind_to_errors) or (self.column.rows and self.values.size < _FEW):
            return walk(detector, self.column.steps, self.values, self.errors)
        return scan(detector, self.column.steps, self.values)

    def events(self, transitions: Transitions) -> Iterator[Event]:
        """Yield the transitions with their readings, and the moments at which a suppression is checked
        again."""
        steps = self.column.steps
        for n, (i, decision) in enumerate(transitions):
            yield self._event(i, decision)
            if (self.rule.suppressions or self.rule.members) and decision.fired:
                end = transitions[n + 1][0] if n + 1 < len(transitions) else steps.size
                while (i := int(np.searchsorted(steps, steps[i] + RECHECK))) < end:
                    yield self._event(i, None)

    def _event(self, i: int, decision: Decision | None) -> Event:
        column = self.column
        return Event(
            int(column.steps[i]), self.order, column.position(i), self.rule, column.reading(i), decision
        )


class Readiness:
    """How many rules on averages could speak at each step of a stored run, as the stream counted them.

    The first values are given to fresh detectors up to the step that is asked for: a baseline is short.
    """

    def __init__(self) -> None:
        self._streams: dict[str, list[_Stream]] = {}

    def add(self, judged: Judged, detector: Detector) -> None:
        """Follow a rule above info on averages; `detector` has seen nothing."""
        stream = _Stream(detector, judged)
        self._streams.setdefault(judged.rule.name, []).append(stream)

    def at(self, step: int) -> tuple[int, int]:
        """Return how many rules were ready after `step`, and how many had values; steps must not descend."""
        ready = seen = 0
        for streams in self._streams.values():
            states = [stream.advance(step) for stream in streams]
            ready += any(states)
            seen += any(stream.position for stream in streams)
        return ready, seen


@dataclass(eq=False)
class _Stream:
    detector: Detector
    judged: Judged
    position: int = 0  # values the detector has seen
    ready: bool = False
    stays_ready: bool = False

    def advance(self, step: int) -> bool:
        """Is the rule ready after `step`?"""
        judged, steps = self.judged, self.judged.column.steps
        while not self.stays_ready and self.position < steps.size and steps[self.position] <= step:
            i, value = self.position, float(judged.values[self.position])
            decision = self.detector.update(
                int(steps[i]), value, judged.errors[i] if judged.errors else math.nan
            )
            transition = decision.fired or decision.cleared or not math.isfinite(value)
            self.position, self.ready = i + 1, decision.ready
            self.stays_ready = decision.ready and not transition and isinstance(self.detector, Scanner)
        return self.ready
