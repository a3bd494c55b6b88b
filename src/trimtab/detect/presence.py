"""Two detectors of the step stream itself: values that are not numbers, and columns that stop arriving."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trimtab.catalog import bound
from trimtab.detect.detector import Decision

__all__ = ["Nonfinite", "Silence"]


@dataclass
class Nonfinite:
    """Fires on the first step a column holds NaN or infinity; clears after `quiet` steps without."""

    quiet: int = 10
    since: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def update(self, step: int, counts: dict[str, int]) -> dict[str, Decision]:
        """Column -> decision, for columns that fired or cleared at this step."""
        edges: dict[str, Decision] = {}
        for column, count in counts.items():
            if count <= 0:
                continue
            if column not in self.since:
                self.since[column] = step
                edges[column] = Decision(True, True, True, since=step, bound=0.0)
            self.last[column] = step
        for column in [c for c in self.since if step - self.last[c] > self.quiet]:
            edges[column] = Decision(True, cleared=True, since=self.since.pop(column), bound=0.0)
        return edges


@dataclass
class Silence:
    """Fires when a column that has arrived is missing for three times its longest gap so far (and 3 steps at least).

    A column seen fewer than three times has no known cadence; it is given 100 steps.
    """

    arrivals: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)

    def update(self, step: int, columns: Iterable[str]) -> dict[str, Decision]:
        """Column -> decision, for columns that fell silent or came back at this step."""
        edges: dict[str, Decision] = {}
        for column in columns:
            if column in self.silent:
                edges[column] = Decision(
                    True, cleared=True, since=self.silent.pop(column), bound=bound("silence")
                )
            elif column in self.last:
                self.longest[column] = max(self.longest.get(column, 1), step - self.last[column])
            self.last[column] = step
            self.arrivals[column] = self.arrivals.get(column, 0) + 1
        factor, unknown = int(bound("silence")), int(bound("silence_unknown"))
        for column, seen in self.last.items():
            if seen == step:
                continue
            known = self.arrivals[column] >= 3
            allowed = factor * self.longest.get(column, 1) if known else unknown
            if column not in self.silent and step - seen > allowed:
                self.silent[column] = seen + 1
                edges[column] = Decision(True, True, True, since=seen + 1, bound=float(allowed))
        return edges
