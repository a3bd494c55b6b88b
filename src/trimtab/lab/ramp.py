"""A quantity that moves with the absolute step, so that a longer run is the same run for its first steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ramp:
    """A straight line between two levels, over absolute training steps.

    It is never a fraction of the total steps: such a schedule changes when somebody asks for a longer run.

    Example:
        >>> [Ramp(0.25, 1.25, start=10, span=40).at(step) for step in (0, 10, 30, 50, 999)]
        [0.25, 0.25, 0.75, 1.25, 1.25]
        >>> Ramp.constant(0.5).at(7)
        0.5
    """

    low: float
    """Value until step `start`."""
    high: float
    """Value from step `start + span` on."""
    start: int = 0
    """First step of the line."""
    span: int = 60
    """Steps between the two; 0 is a jump right after `start`."""

    @classmethod
    def constant(cls, value: float) -> Ramp:
        """Return a ramp with the same value at every step."""
        return cls(value, value)

    def at(self, step: int) -> float:
        """Return the value at this absolute step."""
        if self.span <= 0:
            return self.high if step > self.start else self.low
        fraction = min(max((step - self.start) / self.span, 0.0), 1.0)
        return self.low + (self.high - self.low) * fraction
