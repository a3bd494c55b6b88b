"""Readings computed from others: joint ones, and the rise of one part of the reward while another is idle."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.composite_reading import FAMILIES, CompositeReading
from trimtab.detect.reading_columns import ReadingColumn
from trimtab.detect.whole_series import joint_series
from trimtab.types import Reading, Window
from trimtab.typing import Float64, Int64

KEY = "reward_part/proxy_rise"
PART = "reward_part/mean"
_SPAN = 5  # values of a level


class _Part:
    """First and last level of one part, the highest in between, and whether it was ever earned."""

    def __init__(self) -> None:
        self.last: deque[float] = deque(maxlen=_SPAN)
        self.start = self.highest = math.nan
        self.earned = False

    def add(self, value: float) -> None:
        self.last.append(value)
        self.earned |= value > 0
        if len(self.last) == _SPAN:
            self.start = self.level if math.isnan(self.start) else self.start
            self.highest = max(self.level, self.highest) if self.highest == self.highest else self.level

    @property
    def level(self) -> float:
        return math.fsum(self.last) / _SPAN


class ProxyRise:
    """Computes `reward_part/proxy_rise` step by step.

    The value is the rise of the one part that is earned, its last five values over its first five, while the
    others were earned at least once but their levels never reached the catalog's `reward_part_idle`. It is 0
    where several parts are earned, and absent before ten values or with one part.

    >>> proxy = ProxyRise()
    >>> rising = [proxy.update({"judge": 0.2 + 0.02 * t, "tests": 0.004 * (t % 2)}) for t in range(20)]
    >>> round(rising[-1], 2), rising[3]
    (0.3, nan)
    """

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._count = 0

    def update(self, values: Mapping[str, float]) -> float:
        """Take the parts of one step; NaN where nothing can be said yet."""
        for name, value in values.items():
            if math.isfinite(value):
                self._parts.setdefault(name, _Part()).add(value)
        self._count += 1
        known = [part for part in self._parts.values() if not math.isnan(part.start)]
        if len(known) < 2 or self._count < 2 * _SPAN:
            return math.nan
        idle = [part for part in known if part.earned and part.highest < bound("reward_part_idle")]
        others = [part for part in known if part not in idle]
        return max(0.0, others[0].level - others[0].start) if idle and len(others) == 1 else 0.0

    def scan(self, parts: Iterable[tuple[str, Int64, Float64]]) -> tuple[Int64, Float64]:
        """Return the steps and values of a whole run, from (part, steps, values)."""
        by_step: dict[int, dict[str, float]] = {}
        for name, steps, values in parts:
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                by_step.setdefault(step, {})[name] = value
        rises = [(step, self.update(of_step)) for step, of_step in sorted(by_step.items())]
        known = [(step, rise) for step, rise in rises if not math.isnan(rise)]
        return np.array([s for s, _ in known], np.int64), np.array([v for _, v in known], np.float64)


class DerivedReadings:
    """Readings that are computed from others: the joint ones of each family, and `reward_part/proxy_rise`."""

    def __init__(self) -> None:
        self.joints = {family: CompositeReading(members) for family, members in FAMILIES.items()}
        self.proxy = ProxyRise()

    def of_step(self, readings: Iterable[Reading]) -> list[Reading]:
        """Return those of one step, from the readings that closed at it."""
        values = {(r.key, r.slice): r for r in readings if r.status == "ok"}
        if not values:
            return []
        step = max(reading.step for reading in values.values())
        numbers = {key: reading.value for key, reading in values.items()}
        totals = {f"joint/{family}": joint.update(numbers) for family, joint in self.joints.items()}
        if parts := {name: value for (key, name), value in numbers.items() if key == PART}:
            totals[KEY] = self.proxy.update(parts)
        return [
            Reading(key, step, Window(step, step), "all", total, 0, 0)
            for key, total in totals.items()
            if math.isfinite(total)
        ]

    def of_run(self, columns: Iterable[ReadingColumn]) -> list[ReadingColumn]:
        """Return those of a whole run or log."""
        series = {(column.key, column.slice): (column.steps, column.values) for column in columns}
        derived = joint_series(self.joints, series)
        rise = self.proxy.scan((name, *series[key, name]) for key, name in series if key == PART)
        if rise[0].size:
            derived[KEY, "all"] = rise
        return [ReadingColumn(*key, *one) for key, one in derived.items()]
