"""What detectors share: their state by the names of its fields, and answers for a whole series at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np

from trimtab.detect.detectors.base import Decision, Detector, Edges, Hysteresis
from trimtab.typing import Float64, Int64


class Carried:
    """`state` and `restore` by the names of the fields that change as values come, `carried`."""

    carried: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        return {name: _plain(getattr(self, name)) for name in self.carried}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        for name in self.carried:
            value, now = state[name], getattr(self, name)
            if isinstance(now, Hysteresis):
                setattr(self, name, Hysteresis(**value))
            else:
                setattr(self, name, type(now)(value) if isinstance(now, (list, tuple)) else value)


class Scanner(Carried, ABC):
    """A detector that can answer for a whole series at once, having seen nothing yet."""

    num_skipped: int

    @abstractmethod
    def scan(self, steps: Int64, values: Float64) -> Edges:
        """The edges `update` would give, value by value without standard errors."""

    @property
    @abstractmethod
    def now(self) -> Decision:
        """Is it ready, is it active: what the last value left behind."""

    def finite(self, values: Float64) -> Int64:
        """Places of the values that are finite; the others are counted as skipped."""
        places = np.flatnonzero(np.isfinite(values))
        self.num_skipped += values.size - places.size
        return places


def walk(detector: Detector, steps: Int64, values: Float64) -> tuple[Edges, Decision]:
    """The edges of a detector that answers value by value only, and its last decision."""
    edges: Edges = []
    decision = Decision(False)
    for i, (step, value) in enumerate(zip(steps.tolist(), values.tolist(), strict=True)):
        decision = detector.update(step, value)
        if decision.fired or decision.cleared:
            edges.append((i, decision))
    return edges, decision


def _plain(value: Any) -> Any:
    if isinstance(value, Hysteresis):
        return asdict(value)
    return list(value) if isinstance(value, (list, tuple)) else value
