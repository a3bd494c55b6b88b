"""MachineJudge: readings of the machine from rows of steps, the same live, after a resume and in reports."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab.capture.memory_use import MemoryUse, memory_of
from trimtab.capture.phase_clock import phases_of
from trimtab.capture.step_costs import episodes_of
from trimtab.catalog import bound
from trimtab.distributed.stragglers.episode_hold import EpisodeHold, Hold
from trimtab.distributed.stragglers.memory_forecast import BLOCK, Forecast, MemoryForecast
from trimtab.distributed.stragglers.phase_excess import median_of_others
from trimtab.distributed.stragglers.straggler_judge import SPAN, SlowPhase, StragglerJudge
from trimtab.types import Reading, Window

Rows = Mapping[int, Mapping[str, Any]]
"""Rank -> its row of one step."""


class MachineJudge:
    """Takes the rows of each step, of all ranks that wrote one, and gives the readings that rules judge.

    Attributes:
        slow: phases that are slow now, the costliest first.
        hold: what one last episode costs; None where that is not known.
        forecasts: (rank, kind of memory) -> the last forecast.

    Example:
        judge = MachineJudge()
        for step, rows in steps:  # rows: rank -> row
            readings = judge.update(step, rows)
    """

    def __init__(self) -> None:
        self.stragglers = StragglerJudge()
        self.slow: list[SlowPhase] = []
        self.hold: Hold | None = None
        self.forecasts: dict[tuple[int, str], Forecast] = {}
        self.uses: dict[int, dict[str, MemoryUse]] = {}
        self.recent: dict[int, deque[dict[str, float]]] = {}
        self.waits: frozenset[str] = frozenset()
        self._memory: dict[tuple[int, str], MemoryForecast] = {}
        self._episodes = EpisodeHold()
        self._shown: dict[str, set[str]] = {}  # key -> slices that have stood out, and must be taken back
        self._num_steps = 0

    def update(self, step: int, rows: Rows) -> list[Reading]:
        """Take one step; return its readings, none where the rows have nothing of the machine."""
        self._num_steps += 1
        parsed = {rank: phases_of(row) for rank, row in rows.items()}
        times = {rank: seconds for rank, (seconds, _) in parsed.items() if seconds}
        duration = _duration(rows.values())
        readings = self._phases(step, times, parsed, duration) if times else []
        uses = {rank: memory for rank, row in rows.items() if (memory := memory_of(row))}
        self.uses |= uses
        readings += self._forecasts(step, uses)
        if self._num_steps % (2 * BLOCK) == 0:
            readings += self._imbalance(step)
        episodes = {rank: one for rank, row in rows.items() if (one := episodes_of(row)) is not None}
        self.hold = self._episodes.update(episodes, duration) if episodes else None
        if self.hold is not None:
            text = self.hold.words
            readings.append(_reading("episode/held_frac", step, step, "all", self.hold.held_frac, text))
        return readings

    def _phases(
        self, step: int, times: Mapping[int, dict[str, float]], parsed: Mapping[int, Any], duration: float
    ) -> list[Reading]:
        self.waits = frozenset().union(*(waits for _, waits in parsed.values()))
        for rank, seconds in times.items():
            self.recent.setdefault(rank, deque(maxlen=SPAN)).append(seconds)
        answers = self.stragglers.update(step, times, waits=self.waits, duration_s=duration)
        if answers is None:
            return []
        answers = [
            replace(one, slow=one.slow and one.lost_frac >= bound("straggler_note")) for one in answers
        ]
        self.slow = [one for one in answers if one.slow]
        readings = []
        lost: dict[str, list[SlowPhase]] = {}
        for one in answers:
            name = f"rank/{one.rank}"
            lost.setdefault(name, [])
            if one.slow:
                self._shown.setdefault("phase/slow_ratio", set()).add(f"{name}/{one.phase}")
                lost[name] += [one] if one.basis != "its own past" else []
            value = one.ratio if one.slow else min(one.ratio, 1.0)
            first = one.since if one.slow else step
            readings.append(
                _reading("phase/slow_ratio", step, first, f"{name}/{one.phase}", value, _words(one))
            )
        for name, phases in lost.items():
            if phases:
                self._shown.setdefault("straggler/lost_frac", set()).add(name)
            first = min((one.since for one in phases), default=step)
            total = math.fsum(one.lost_frac for one in phases)
            text = "; ".join(map(_words, phases))
            readings.append(_reading("straggler/lost_frac", step, first, name, total, text))
        return readings + self._taken_back(step, readings)

    def _taken_back(self, step: int, readings: list[Reading]) -> list[Reading]:
        """Readings of what stood out before and does so no longer."""
        now = {(one.key, one.slice) for one in readings}
        calm = {"phase/slow_ratio": 1.0, "straggler/lost_frac": 0.0}
        return [
            _reading(key, step, step, name, value, "as fast as the others")
            for key, value in calm.items()
            for name in sorted(self._shown.get(key, ()))
            if (key, name) not in now
        ]

    def _forecasts(self, step: int, uses: Mapping[int, Mapping[str, MemoryUse]]) -> list[Reading]:
        readings = []
        for rank, memory in uses.items():
            for kind, use in memory.items():
                forecast = self._memory.setdefault((rank, kind), MemoryForecast()).update(step, use)
                if forecast is None:
                    continue
                self.forecasts[rank, kind] = forecast
                text = f"{kind} memory grows by {_size(forecast.bytes_per_step)} a step"
                finite = math.isfinite(forecast.steps_left)
                readings.append(
                    Reading(
                        "memory/steps_left", step, Window(forecast.since, step), f"rank/{rank}/{kind}",
                        forecast.steps_left, 0, 0, forecast.low if finite else math.nan,
                        forecast.high if finite else math.nan, reason=text if finite else "no trend",
                    )
                )  # fmt: skip
        return readings

    def _imbalance(self, step: int) -> list[Reading]:
        """One reading a kind of memory: the rank that holds the largest multiple of the others' median."""
        readings = []
        ranks = sorted(self.uses)
        for kind in sorted({kind for memory in self.uses.values() for kind in memory}):
            used = [
                float(self.uses[rank][kind].used) if kind in self.uses[rank] else math.nan for rank in ranks
            ]
            table = np.array(used)[:, None]
            ratios = (table / median_of_others(table))[:, 0]
            if not np.isfinite(ratios).any():
                continue
            first = int(np.nanargmax(ratios))
            shown = self._shown.setdefault(f"memory/imbalance/{kind}", set())
            if ratios[first] > bound("memory_apart"):
                shown.add(str(first))
            for i in sorted({first, *map(int, shown)}):
                text = f"{_size(used[i])} of {kind} memory"
                readings.append(
                    _reading(
                        "memory/imbalance", step, step, f"rank/{ranks[i]}/{kind}", float(ratios[i]), text
                    )
                )
        return readings


def _duration(rows: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of the step: the longest that a rank gives, or the sum of its phases; NaN where none does."""
    numbers = []
    for row in rows:
        seconds = row.get("duration_s")
        known = isinstance(seconds, (int, float)) and math.isfinite(seconds)
        numbers.append(float(seconds or 0.0) if known else math.fsum(phases_of(row)[0].values()))
    return max((one for one in numbers if one > 0), default=math.nan)


def _reading(key: str, step: int, first: int, name: str, value: float, reason: str = "") -> Reading:
    return Reading(key, step, Window(min(first, step), step), name, value, 0, 0, reason=reason)


def _words(one: SlowPhase) -> str:
    return f"{one.phase} takes {one.ratio:.3g} times as long as {one.basis}, {one.lost_s:.3g} s a step"


def _size(number: float) -> str:
    """
    >>> _size(3 * 2**20), _size(12.5 * 2**30)
    ('3.0 MiB', '12.5 GiB')
    """
    unit, words = (2**30, "GiB") if abs(number) >= 2**30 else (2**20, "MiB")
    return f"{number / unit:.1f} {words}"
