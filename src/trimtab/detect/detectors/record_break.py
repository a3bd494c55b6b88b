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
    recent: list[list[float]] = field(default_factory=list)  # (step, value, error) of the last values
    means: list[float] = field(default_factory=list)
    record: float = math.nan
    active: bool = False
    since: int = -1

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        if not math.isfinite(value):
            self.num_skipped += 1
            return self._decision(math.nan)
        self.recent = [*self.recent, [step, self.sign * value, se]][-self.span :]
        if len(self.recent) < self.span:
            return Decision(False)
        mean = math.fsum(row[1] for row in self.recent) / self.span
        limit = max(self.level * self.sign, self.record + self.margin) if self._ready else math.nan
        if self.active:
            return self._while_active(limit)
        if self._ready and mean - self.errors * self._error() > limit:
            self.active, self.since = True, int(self.recent[0][0])
            self.means = self.means[: len(self.means) - self.span + 1]  # before `recent`
            return self._decision(limit, fired=True, fitted=self.sign * mean)
        self.means = [*self.means, mean][-(self.memory + self.span) :]
        past = (
            self.means[: 1 - self.span] if self.span > 1 else self.means
        )  # those that share no value with the next
        self.record = max(past) if past else math.nan
        return self._decision(limit)

    def _while_active(self, limit: float) -> Decision:
        if max(row[1] for row in self.recent) > (limit + self.record) / 2:
            return self._decision(limit)
        self.active = False
        return self._decision(limit, cleared=True)

    def _error(self) -> float:
        """Standard error of the mean; unknown ones count as none."""
        return math.sqrt(math.fsum(e * e for _, _, e in self.recent if math.isfinite(e))) / self.span

    @property
    def _ready(self) -> bool:
        return len(self.means) >= self.baseline

    def _decision(
        self, limit: float, fired: bool = False, cleared: bool = False, fitted: float = math.nan
    ) -> Decision:
        since = self.since if self.active or cleared else -1
        return Decision(self._ready, self.active, fired, cleared, since, self.sign * limit, fitted)
