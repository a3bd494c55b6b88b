"""Flatline detector: a value is stuck, as a broken reward is.

Or tasks that are all solved or all unsolved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions
from trimtab.typing import Float64, Int64


@dataclass
class Flatline(Scanner):
    """Stuck-value detector.

    Fires when `values` values in a row are the same number; clears when as many differ.

    An exact statement: it takes no part of the budget. `since` is the step of the first repetition.

    >>> d = Flatline(values=4)
    >>> [d.update(t, x).fired for t, x in enumerate([0.1, 0.3, 0.3, 0.3, 0.3])]
    [False, False, False, False, True]
    """

    carried: ClassVar[tuple[str, ...]] = ("num_skipped", "count", "last", "hysteresis")
    values: int = field(default_factory=lambda: int(bound("idle_steps")))
    num_skipped: int = 0
    count: int = 0
    last: float = math.nan
    hysteresis: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        self.hysteresis = Hysteresis(self.values - 1)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return self.now
        same, self.last, self.count = value == self.last, value, self.count + 1
        if self.count == 1:
            return self.now
        decision = self.hysteresis.update(step, same, not same, value)
        return decision if decision.fired or decision.cleared else self.now

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once."""
        indices = self.finite(values)
        if not indices.size:
            return []
        x = values[indices]
        self.last, self.count = float(x[-1]), x.size
        same = x[1:] == x[:-1]
        return [
            (int(indices[i + 1]), decision)
            for i, decision in self.hysteresis.scan(steps[indices[1:]], same, ~same, x[1:])
        ]

    @property
    def now(self) -> Decision:
        """Ready once it could have fired."""
        return Decision(self.count >= self.values, self.hysteresis.active, since=self.hysteresis.since)
