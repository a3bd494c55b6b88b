"""Two detectors of the step stream itself: values that are not numbers, and columns that stop arriving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.detect.detector import Decision

__all__ = ["Nonfinite", "Silence"]

Int = npt.NDArray[np.int64]
Placed = list[tuple[int, str, Decision]]
"""(index of the step, column, decision) where an alarm starts or ends, in order of steps, then of columns."""


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

    def scan(self, steps: Int, bad: Mapping[str, Int]) -> Placed:
        """`update` for a whole log at once: `bad` is column -> places in `steps` at which it held NaN or infinity."""
        edges: Placed = []
        for column, places in bad.items():
            if not places.size:
                continue
            quiet = np.searchsorted(steps, steps[places] + self.quiet, side="right")  # where it would clear
            ends = np.flatnonzero(quiet < np.append(places[1:], steps.size))
            starts = np.append(0, ends[:-1] + 1) if ends.size else np.zeros(1, np.int64)
            if ends.size and ends[-1] + 1 < places.size:
                starts = np.append(starts, ends[-1] + 1)
            for i in starts.tolist():
                since = int(steps[places[i]])
                edges.append((int(places[i]), column, Decision(True, True, True, since=since, bound=0.0)))
            for i, start in zip(ends.tolist(), starts.tolist(), strict=False):
                since = int(steps[places[start]])
                edges.append((int(quiet[i]), column, Decision(True, cleared=True, since=since, bound=0.0)))
        return sorted(edges, key=lambda edge: edge[0])


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

    def scan(self, steps: Int, arrived: Mapping[str, Int]) -> Placed:
        """`update` for a whole log at once: `arrived` is column -> places in `steps`, all of them in ascending order."""
        order = sorted(
            (name for name in arrived if arrived[name].size), key=lambda name: int(arrived[name][0])
        )
        edges = [edge for name in order for edge in _silences(steps, name, arrived[name])]
        return sorted(edges, key=lambda edge: (edge[0], not edge[2].cleared))


def _silences(steps: Int, column: str, places: Int) -> Placed:
    """Where one column falls silent and comes back."""
    at = steps[places]
    gaps = np.diff(at)  # a gap that was a silence is no cadence: it is set to 0 once found
    latest = steps[np.append(places[1:], steps.size) - 1]  # the last step before it comes back
    allowed = np.full(places.size, int(bound("silence_unknown")))
    factor = int(bound("silence"))
    edges: Placed = []
    begin = 0
    while True:
        longest = np.maximum.accumulate(np.append(1, gaps))
        allowed[2:] = factor * longest[2:]
        silent = begin + np.flatnonzero(latest[begin:] - at[begin:] > allowed[begin:])
        if not silent.size:
            return edges
        i = int(silent[0])
        since, limit = int(at[i]) + 1, int(allowed[i])
        fired = int(np.searchsorted(steps, at[i] + limit, side="right"))
        edges.append((fired, column, Decision(True, True, True, since=since, bound=float(limit))))
        begin = i + 1
        if begin == places.size:
            return edges
        gaps[i] = 0
        back = Decision(True, cleared=True, since=since, bound=bound("silence"))
        edges.append((int(places[begin]), column, back))
