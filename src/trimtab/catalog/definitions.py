"""What a row of the catalog is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Direction = Literal["up is bad", "down is bad", "neither"]
UNCALIBRATED = "default, not calibrated"
_RANGES = {"share": (0.0, 1.0)} | dict.fromkeys(("count", "seconds", "1/s", "versions"), (0.0, math.inf))


@dataclass(frozen=True)
class Definition:
    """What a reading is. `unit`: nats, share, ratio, count, or 1 for a pure number; a share lies between 0
    and 1."""

    what: str
    unit: str
    direction: Direction
    source: str

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value it can have, as far as its unit says.

        >>> Definition("tool calls a sequence", "count", "neither", UNCALIBRATED).range
        (0.0, inf)
        """
        return _RANGES.get(self.unit, (-math.inf, math.inf))


@dataclass(frozen=True)
class Bound:
    """A number some rule compares with. `source` is a citation or the words "default, not calibrated"."""

    value: float
    unit: str
    derivation: str
    source: str
