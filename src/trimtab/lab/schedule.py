"""A quantity that moves with the absolute step, so that a longer run is the same run for its first steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ramp:
    """`low` until step `start`, then straight to `high` at `start + span`, then `high`.

    Never a share of the total steps: such a schedule changes when somebody asks for a longer run.

    >>> [Ramp(0.25, 1.25, start=10, span=40).at(step) for step in (0, 10, 30, 50, 999)]
    [0.25, 0.25, 0.75, 1.25, 1.25]
    >>> Ramp.constant(0.5).at(7)
    0.5
    """

    low: float
    high: float
    start: int = 0
    span: int = 60

    @classmethod
    def constant(cls, value: float) -> Ramp:
        """The same value at every step."""
        return cls(value, value)

    def at(self, step: int) -> float:
        """The value at this absolute step; a `span` of 0 is a jump right after `start`."""
        if self.span <= 0:
            return self.high if step > self.start else self.low
        share = min(max((step - self.start) / self.span, 0.0), 1.0)
        return self.low + (self.high - self.low) * share
