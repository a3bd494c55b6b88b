"""Readings of one key and slice over a whole log or run, as columns; a `Reading` is made when shown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.detect.rules.rule import Rule
from trimtab.runs.records import readings_from_row
from trimtab.types import Reading, Window
from trimtab.typing import Float64, Int64

Row = dict[str, Any]


@dataclass(eq=False)
class ReadingColumn:
    """Values of one reading and slice, in the order of steps."""

    key: str
    slice: str
    steps: Int64
    values: Float64
    rows: Sequence[Row] = ()  # stored row of each value; empty for a metrics log
    positions: Sequence[int] = ()  # place of each row among all rows; of one step the first is judged first

    def reading(self, i: int) -> Reading:
        """Return the reading of value i."""
        if self.rows:
            return next(readings_from_row(self.rows[i], (self.key,)))
        step = int(self.steps[i])
        return Reading(self.key, step, Window(step, step), self.slice, float(self.values[i]), 0, 0)

    def position(self, i: int) -> int:
        """Return the place of value i among the rows of its step."""
        return self.positions[i] if self.positions else 0

    def with_enough(self, min_count: int) -> ReadingColumn:
        """Return the readings that rest on `min_count` tokens or calls, or on an unknown number of them."""
        if not min_count or not self.rows:
            return self
        counts = np.array([int(row["n"].get(self.key, row["n_tokens"])) for row in self.rows], np.int64)
        taken = np.flatnonzero((counts <= 0) | (counts >= min_count))
        if taken.size == counts.size:
            return self
        rows, positions = [self.rows[i] for i in taken.tolist()], [self.positions[i] for i in taken.tolist()]
        return ReadingColumn(self.key, self.slice, self.steps[taken], self.values[taken], rows, positions)

    def errors(self, rule: Rule) -> list[float] | None:
        """Return the standard errors in the detector's unit, off the 95 % intervals; None without any."""
        if not any(self.key in row["low"] for row in self.rows):
            return None
        return [standard_error(rule, self.reading(i)) for i in range(len(self.rows))]


def standard_error(rule: Rule, reading: Reading) -> float:
    """Standard error in the detector's unit, off the reading's 95 % interval; nan without one."""
    low, high = rule.value(reading.low), rule.value(reading.high)
    return (high - low) / (2 * 1.96) if math.isfinite(low) and math.isfinite(high) else math.nan


@dataclass(eq=False)
class _Parts:
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


def columns_of_rows(rows: Iterable[Row], wanted: Collection[tuple[str, str]]) -> list[ReadingColumn]:
    """Return the `wanted` columns, (key, slice), of stored rows in the order of steps.

    What was not observed is left out.
    """
    keys: dict[str, set[str]] = {}
    for key, name in wanted:
        keys.setdefault(name, set()).add(key)
    parts: dict[tuple[str, str], _Parts] = {}
    for position, row in enumerate(rows):
        name, values, reasons = row["slice"], row["values"], row["reasons"]
        for key in keys.get(name, set()) & values.keys():
            value = math.nan if values[key] is None else float(values[key])
            if value != value and reasons.get(key):
                continue
            part = parts.setdefault((key, name), _Parts())
            part.steps.append(int(row["step"]))
            part.values.append(value)
            part.rows.append(row)
            part.positions.append(position)
    return [
        ReadingColumn(key, name, np.array(one.steps, np.int64), np.array(one.values), one.rows, one.positions)
        for (key, name), one in parts.items()
    ]
