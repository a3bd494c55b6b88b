"""Plateau detector: a series has stopped rising."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Scanner, Transitions
from trimtab.typing import Float64, Int64

_BLOCK = 16  # values between looks


@dataclass
class Plateau(Scanner):
    """Plateau detector.

    Fires when the last `window` values can have risen by at most `gain` of the best window's rise.

    "Can have" is the upper end of the fitted line's 95 % interval, its error widened by the lag-1 correlation
    of the residuals. The best window counts by its lower end. It clears when the line itself rises more. A
    description, not a test: it has no false-alarm rate.

    >>> d = Plateau(window=64)
    >>> [d.update(t, min(t, 100) / 100 + (t % 3) / 50).fired for t in range(300)].index(True)
    159
    """

    carried: ClassVar[tuple[str, ...]] = (
        "num_skipped", "values", "steps", "count", "best", "active", "since",
    )  # fmt: skip
    window: int = 128
    gain: float = field(default_factory=lambda: bound("plateau_gain"))
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    count: int = 0
    best: float = 0.0
    active: bool = False
    since: int = -1

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return self.now
        self.values, self.steps = [*self.values, value][-self.window :], [*self.steps, step][-self.window :]
        self.count += 1
        if self.count % _BLOCK:
            return self.now
        return self._evaluate(np.array(self.values), self.steps[0])

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once."""
        indices = self.finite(values)
        x, transitions = values[indices], []
        for count in range(_BLOCK, indices.size + 1, _BLOCK):
            self.count, first = count, max(0, count - self.window)
            decision = self._evaluate(x[first:count], int(steps[indices[first]]))
            if decision.fired or decision.cleared:
                transitions.append((int(indices[count - 1]), decision))
        self.count = indices.size
        self.values, self.steps = x[-self.window :].tolist(), steps[indices][-self.window :].tolist()
        return transitions

    @property
    def now(self) -> Decision:
        """Ready once the window is full."""
        return Decision(self.count >= self.window, self.active, since=self.since)

    def _evaluate(self, x: Float64, first: int) -> Decision:
        if x.size < self.window:
            return self.now
        gained, error = _rise(x)
        self.best = max(self.best, gained - 1.96 * error)
        max_gain = self.gain * self.best
        if not self.active and gained + 1.96 * error < max_gain:
            self.active, self.since = True, first
            return Decision(True, True, True, since=first, bound=float(x[-_BLOCK:].mean()))
        if self.active and gained > max_gain:
            self.active = False
            return Decision(True, cleared=True, since=self.since)
        return self.now


def _rise(x: Float64) -> tuple[float, float]:
    """How far the line through `x` rises over it, and the standard error of that."""
    t = np.arange(x.size) - (x.size - 1) / 2
    slope = float(t @ x) / float(t @ t)
    rest = x - x.mean() - slope * t
    total = float(rest @ rest)
    phi = min(max(float(rest[1:] @ rest[:-1]) / total, 0.0), 0.95) if total > 0 else 0.0
    error = math.sqrt(total / (x.size - 2) / float(t @ t) * (1 + phi) / (1 - phi))
    return slope * (x.size - 1), error * (x.size - 1)
