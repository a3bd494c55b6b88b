"""What a row of the catalog is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["HOUSE", "Bound", "Definition", "Direction"]

Direction = Literal["up is bad", "down is bad", "neither"]
HOUSE = "house default"


@dataclass(frozen=True)
class Definition:
    """What a reading is. `unit`: nats, share, ratio, count, or 1 for a pure number."""

    what: str
    unit: str
    direction: Direction
    source: str


@dataclass(frozen=True)
class Bound:
    """A number some rule compares with. `source` is a citation or the words "house default"."""

    value: float
    unit: str
    derivation: str
    source: str
