"""Plateau-exit detector: a series leaves a plateau in a jump. For users' rules; no built-in one has it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Scanner, Transitions
from trimtab.typing import Float64, Int64


@dataclass
class PlateauExit(Scanner):
    """Plateau-exit detector.

    Fires when a series flat for `plateau` values moves by `factor` times its range within `window`.

    Grokking looks like this: information, as a rule. `sign` +1 for a jump upwards.

    >>> d = PlateauExit(plateau=30, window=10)
    >>> [d.update(t, 0.1 + (t % 2) / 100 + (0.5 if t >= 50 else 0.0)).fired for t in range(70)].index(True)
    57
    """

    carried: ClassVar[tuple[str, ...]] = ("num_skipped", "values", "active", "since", "count")
    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    plateau: int = 100
    window: int = 10
    factor: float = 5.0
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    active: int = 0
    since: int = -1
    count: int = 0

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.plateau + self.window, self.active > 0, since=self.since)
        self.values.append(value)
        del self.values[: -(self.plateau + self.window)]
        self.count += 1
        if len(self.values) < self.plateau + self.window:
            return Decision(False)
        if self.active:
            self.active -= 1
            return Decision(True, self.active > 0, cleared=self.active == 0, since=self.since)
        if self.count % 2:
            return Decision(True)
        return self._evaluate(step, self.values[: self.plateau], self.values[self.plateau :])

    def _evaluate(self, step: int, before: list[float], now: list[float]) -> Decision:
        """Has the plateau been left by the last values?"""
        spread = max(before) - min(before)
        if self.sign * (now[-1] - before[-1]) < 2.0 * spread:  # far from it, most of the time
            return Decision(True)
        half = self.plateau // 2
        drift = abs(math.fsum(before[half:]) / (len(before) - half) - math.fsum(before[:half]) / half)
        limit = median(before) + self.sign * self.factor * spread
        beyond = sum(self.sign * (x - limit) > 0 for x in now)
        if spread > 0 and drift < 0.25 * spread and beyond >= 0.8 * self.window:
            self.active, self.since = self.plateau, step - self.window + 1
            return Decision(True, True, True, since=self.since, bound=limit)
        return Decision(True, bound=limit)

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """Run `update` over a whole series: the full test only where a value lies far from its plateau."""
        indices, span = self.finite(values), self.plateau + self.window
        x, n = values[indices], indices.size
        self.count, self.values = n, x[-span:].tolist()
        ends = np.arange(span + span % 2, n + 1, 2)  # values seen so far at each
        if not ends.size:
            return []
        plateaus = np.lib.stride_tricks.sliding_window_view(x, self.plateau)[ends[0] - span :: 2][: ends.size]
        spread = plateaus.max(axis=1) - plateaus.min(axis=1)
        far = self.sign * (x[ends - 1] - x[ends - self.window - 1]) >= 2.0 * spread
        transitions: Transitions = []
        free = 0
        for count in ends[far & (spread > 0)].tolist():
            if count < free:
                continue
            before, now = (
                x[count - span : count - self.window].tolist(),
                x[count - self.window : count].tolist(),
            )
            decision = self._evaluate(int(steps[indices[count - 1]]), before, now)
            if decision.fired:
                transitions.append((int(indices[count - 1]), decision))
                free = count + self.plateau + 1
                self.active = max(0, free - 1 - n)
                if free - 1 <= n:
                    transitions.append(
                        (int(indices[free - 2]), Decision(True, cleared=True, since=self.since))
                    )
        return transitions

    @property
    def now(self) -> Decision:
        """Ready once the plateau and the window after it are full."""
        return Decision(self.count >= self.plateau + self.window, self.active > 0, since=self.since)
