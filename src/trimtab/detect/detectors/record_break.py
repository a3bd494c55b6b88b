"""A level that a run has never had: for series with a value every step, from the first dozen steps on.

The mean of the last `span` values is held against a level that is known beforehand and against the run's
own record, the most extreme mean of as many values before them. A record needs no model of the scatter: a
series that wanders or has heavy tails sets its own bar. The level keeps records of no consequence silent.
Rates of false alarms are measured, not derived (docs/explanation/step-rules.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Carried, Decision


@dataclass
class RecordBreak(Carried):
    """Record-break detector.

    Fires when the mean of the last `span` values lies beyond `level`, and beyond every earlier mean of `span`
    values by `margin` (`sign` +1 above, -1 below); all in the unit of the values, which may be logarithms.

    With standard errors the mean must lie beyond both by `errors` of its own. `baseline` means must come
    before. The record is that of the last `memory` means; while the detector is active nothing is added to
    it. It clears when each of the last `span` values has come half of the way back to the record.

    >>> d = RecordBreak(level=1.0, margin=0.5, span=2, baseline=3)
    >>> [d.update(t, x).fired for t, x in enumerate([0.0, 0.8, 0.6, 0.7, 3.0, 3.0])]
    [False, False, False, False, True, False]
    """

    carried: ClassVar[tuple[str, ...]] = (
        "recent", "means", "record", "num_skipped", "active", "since",
    )  # fmt: skip
    level: float
    margin: float
    sign: int = 1
    span: int = 3
    errors: float = 0.0
    baseline: int = field(default_factory=lambda: int(bound("record_baseline")))
    memory: int = field(default_factory=lambda: int(bound("memory_values")))
    num_skipped: int = 0
    recent: list[tuple[int, float, float]] = field(default_factory=list)  # step, value, error
    means: list[float] = field(default_factory=list)
    record: float = math.nan  # while active: the record that was broken
    active: bool = False
    since: int = -1

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        if not math.isfinite(value):
            self.num_skipped += 1
            return self._decision()
        recent, level = self.recent, self.sign * self.level
        recent.append((step, self.sign * value, se))
        if len(recent) > self.span:
            del recent[0]
        if len(recent) < self.span:
            return self._decision()
        if self.active:
            return self._while_active()
        mean = sum(row[1] for row in recent) / self.span
        if mean > level and len(self.means) >= self.baseline:
            before = len(self.means) - self.span + 1  # later means share a value with this one
            record = max(self.means[:before])
            limit = max(level, record + self.margin)
            if mean - self.errors * self._error() > limit:
                self.active, self.record = True, record
                half = (record + limit) / 2
                self.since = next(int(at) for at, of_step, _ in recent if of_step > half)
                del self.means[before:]
                return self._decision(fired=True, fitted=self.sign * mean)
        self.means.append(mean)
        if len(self.means) > self.memory + self.span:
            del self.means[0]
        return self._decision()

    def _while_active(self) -> Decision:
        half = (self._limit + self.record) / 2
        self.active = any(row[1] > half for row in self.recent)
        return self._decision(cleared=not self.active)

    @property
    def _limit(self) -> float:
        return max(self.sign * self.level, self.record + self.margin)

    def _error(self) -> float:
        """Standard error of the mean; unknown ones count as none."""
        return math.sqrt(sum(e * e for _, _, e in self.recent if math.isfinite(e))) / self.span

    def _decision(self, fired: bool = False, cleared: bool = False, fitted: float = math.nan) -> Decision:
        ready = len(self.means) >= self.baseline or self.active
        if not (self.active or cleared):
            return _READY if ready else _COLLECTING
        return Decision(ready, self.active, fired, cleared, self.since, self.sign * self._limit, fitted)


_READY, _COLLECTING = Decision(True), Decision(False)
