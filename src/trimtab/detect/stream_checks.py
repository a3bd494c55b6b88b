"""Checks of the step stream itself: non-finite values, and columns that stop arriving."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision
from trimtab.typing import Int64

Placed = list[tuple[int, str, Decision]]
"""(index of the step, column, decision) where an alarm starts or ends, in order of steps, then of columns."""


StepEvent = tuple[int, str, str, Decision, float]
"""(step, rule, column, decision, value) where an alarm starts or ends."""


@dataclass
class Nonfinite:
    """Fires on the first step a column holds NaN or infinity; clears after `quiet` steps without."""

    quiet: int = 10
    since: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def update(self, step: int, counts: dict[str, int]) -> dict[str, Decision]:
        """Column -> decision, for columns that fired or cleared at this step."""
        transitions: dict[str, Decision] = {}
        for column, count in counts.items():
            if count <= 0:
                continue
            if column not in self.since:
                self.since[column] = step
                transitions[column] = Decision(True, True, True, since=step, bound=0.0)
            self.last[column] = step
        for column in [c for c in self.since if step - self.last[c] > self.quiet]:
            transitions[column] = Decision(True, cleared=True, since=self.since.pop(column), bound=0.0)
        return transitions

    def scan(self, steps: Int64, bad: Mapping[str, Int64]) -> Placed:
        """Run `update` over a whole log: `bad` is column -> indices in `steps` of NaN or infinity."""
        transitions: Placed = []
        for column, indices in bad.items():
            if not indices.size:
                continue
            quiet = np.searchsorted(steps, steps[indices] + self.quiet, side="right")  # where it would clear
            ends = np.flatnonzero(quiet < np.append(indices[1:], steps.size))
            starts = np.append(0, ends[:-1] + 1) if ends.size else np.zeros(1, np.int64)
            if ends.size and ends[-1] + 1 < indices.size:
                starts = np.append(starts, ends[-1] + 1)
            for i in starts.tolist():
                since = int(steps[indices[i]])
                transitions.append(
                    (int(indices[i]), column, Decision(True, True, True, since=since, bound=0.0))
                )
            for i, start in zip(ends.tolist(), starts.tolist(), strict=False):
                since = int(steps[indices[start]])
                transitions.append(
                    (int(quiet[i]), column, Decision(True, cleared=True, since=since, bound=0.0))
                )
        return sorted(transitions, key=lambda hysteresis: hysteresis[0])


@dataclass
class MissingColumn:
    """Missing-column check. Fires when a column is missing for longer than its own gaps explain (`_allowed`).

    A column seen fewer than three times has no known cadence; it is given 100 steps.
    """

    row: int = 0
    arrivals: dict[str, int] = field(default_factory=dict)
    first: dict[str, tuple[int, int]] = field(default_factory=dict)
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)
    shortest: dict[str, int] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)

    def update(self, step: int, columns: Iterable[str]) -> dict[str, Decision]:
        """Column -> decision, for columns that fell silent or came back at this step."""
        transitions: dict[str, Decision] = {}
        self.row += 1
        for column in columns:
            if column in self.silent:
                transitions[column] = Decision(
                    True, cleared=True, since=self.silent.pop(column), bound=bound("silence")
                )
            elif column in self.last:
                gap = step - self.last[column][1]
                self.longest[column] = max(self.longest.get(column, 1), gap)
                self.shortest[column] = min(self.shortest.get(column, gap), gap)
            self.first.setdefault(column, (self.row, step))
            self.last[column] = (self.row, step)
            self.arrivals[column] = self.arrivals.get(column, 0) + 1
        for column, (row, seen) in self.last.items():
            if row == self.row or column in self.silent:
                continue
            begin, start = self.first[column]
            longest = self.longest.get(column, 1)
            allowed = _allowed(
                self.arrivals[column], row - begin + 1, seen - start, longest, self.shortest.get(column, 0)
            )
            if step - seen > allowed:
                self.silent[column] = seen + 1
                transitions[column] = Decision(True, True, True, since=seen + 1, bound=float(allowed))
        return transitions

    def scan(self, steps: Int64, arrived: Mapping[str, Int64]) -> Placed:
        """Run `update` over a whole log: `arrived` is column -> indices in `steps`, in ascending order."""
        order = sorted(
            (name for name in arrived if arrived[name].size), key=lambda name: int(arrived[name][0])
        )
        transitions = [hysteresis for name in order for hysteresis in _silences(steps, name, arrived[name])]
        return sorted(transitions, key=lambda hysteresis: (hysteresis[0], not hysteresis[2].cleared))


def scan_steps(
    rows: Sequence[Mapping[str, Any]], nonfinite: Nonfinite, silence: MissingColumn
) -> list[StepEvent]:
    """Run both checks over the stored steps of a run, in ascending order: the answers of `update`."""
    arrived: dict[str, list[int]] = {}
    bad: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        for column in row["columns"]:
            arrived.setdefault(column, []).append(i)
        for column, count in row["nonfinite"].items():
            if count > 0:
                bad.setdefault(column, []).append(i)
    steps = np.array([row["step"] for row in rows], np.int64)
    events: list[tuple[tuple[int, int, int], StepEvent]] = []
    for at, column, decision in nonfinite.scan(steps, _arrays(bad)):
        here = rows[at]["nonfinite"]
        index = list(here).index(column) if decision.fired else len(here)
        count = float(here.get(column, 0))
        events.append(((at, 0, index), (int(steps[at]), "nonfinite", column, decision, count)))
    for index, (at, column, decision) in enumerate(silence.scan(steps, _arrays(arrived))):
        missing = float(steps[at] - decision.since + 1)
        events.append(((at, 1, index), (int(steps[at]), "column_silent", column, decision, missing)))
    return [event for _, event in sorted(events, key=lambda one: one[0])]


def _arrays(indices: Mapping[str, list[int]]) -> dict[str, Int64]:
    return {column: np.unique(np.array(one, np.int64)) for column, one in indices.items()}


def _allowed(arrivals: int, rows: int, span: int, longest: int, shortest: int) -> int:
    """Return the steps a column may be missing.

    It arrived at `arrivals` of `rows` steps, `span` from first to last, with gaps from `shortest` to
    `longest`. It may miss three times the longest gap. Unless it has a cadence (gaps of more than one row,
    all alike), it may also stay away as long as one that comes by chance does with a probability of 1e-6: (1
    - p)^k = 1e-6, in rows. p is the smallest fraction that fits the rows after the first, `arrivals` - 1 of
    `rows` - 1, within z standard errors (Wilson 1927, J. Am. Stat. Assoc. 22, 209). It stays under 1 in a
    column that never missed one, and few rows allow for much.

    >>> _allowed(100, 100, 99, 1, 1), _allowed(10, 100, 99, 30, 1), _allowed(10, 100, 99, 11, 11)
    (5, 282, 33)
    """
    if arrivals < 3:
        return int(bound("silence_unknown"))
    known = int(bound("silence")) * longest
    if arrivals >= bound("silence_cadence") and arrivals < rows and shortest == longest:
        return known
    n, z2 = rows - 1, bound("silence_deviate") ** 2
    p = (arrivals - 1) / n
    low = (p + z2 / (2 * n) - math.sqrt(z2 / n * (p * (1 - p) + z2 / (4 * n)))) / (1 + z2 / n)
    missed = math.log(bound("silence_chance")) / math.log1p(-low)
    return max(known, math.ceil(missed * span / (rows - 1)))


def _silences(steps: Int64, column: str, indices: Int64) -> Placed:
    """Return where one column stops arriving and comes back."""
    at = steps[indices]
    gaps = np.diff(at)  # a gap that fired does not count as cadence: it is set to 0
    latest = steps[np.append(indices[1:], steps.size) - 1]  # the last step before it comes back
    min_gap = np.full(indices.size, int(bound("silence_unknown")))
    transitions: Placed = []
    begin = 0
    while True:
        longest = np.maximum.accumulate(np.append(1, gaps))
        min_gap[2:] = int(bound("silence")) * longest[2:]
        for i in (begin + np.flatnonzero(latest[begin:] - at[begin:] > min_gap[begin:])).tolist():
            known = gaps[:i][gaps[:i] > 0]
            shortest = int(known.min()) if known.size else 0
            rows, span = int(indices[i] - indices[0]) + 1, int(at[i] - at[0])
            limit = _allowed(i + 1, rows, span, int(longest[i]), shortest)
            if latest[i] - at[i] > limit:
                break
        else:
            return transitions
        since = int(at[i]) + 1
        fired = int(np.searchsorted(steps, at[i] + limit, side="right"))
        transitions.append((fired, column, Decision(True, True, True, since=since, bound=float(limit))))
        begin = i + 1
        if begin == indices.size:
            return transitions
        gaps[i] = 0
        back = Decision(True, cleared=True, since=since, bound=bound("silence"))
        transitions.append((int(indices[begin]), column, back))
