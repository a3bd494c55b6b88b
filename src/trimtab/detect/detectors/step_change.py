"""Step-change detector: a gross change from one handful of values to the next, on any curve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions
from trimtab.stats.array_kernels import row_medians
from trimtab.stats.student_t import t_quantile
from trimtab.typing import Float64, Int64

_MIN_MOVES = 8  # differences of neighbouring blocks that make a scatter


@dataclass
class StepChange(Scanner):
    """Step-change detector.

    Compares the median of the last `window` values with that of the `window` values before.

    It fires when the distance exceeds the limit `confirm` times in a row; `sign` +1 upwards, -1 downwards.
    The limit is the t quantile of level 1/`arl` times the scatter of such distances, and at least
    `min_effect` (the values' unit) and `min_frac` of the level before; one of the two must be set. The
    scatter is the robust deviation of differences of neighbouring blocks over the last `memory` values, about
    their median; a median in the watched direction is subtracted as well. Curves that bend over tens of
    values add little to it. An alarm ends when half the way is gone back, or after `hold` values.

    >>> d = StepChange(sign=-1, min_frac=0.4)
    >>> [d.update(t, t / 100 - (0.5 if t >= 90 else 0.0)).fired for t in range(100)].index(True)
    94
    """

    carried: ClassVar[tuple[str, ...]] = (
        "num_skipped", "recent", "blocks", "count", "centre", "reach", "hysteresis", "at_alarm",
    )  # fmt: skip
    sign: int = 1
    window: int = 6
    min_effect: float = 0.0
    min_frac: float = 0.0
    memory: int = 400
    hold: int = 100
    confirm: int = 2
    arl: float = field(default_factory=lambda: bound("arl"))
    num_skipped: int = 0
    recent: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)
    count: int = 0
    centre: float = 0.0
    reach: float = math.inf
    at_alarm: tuple[float, float, int] = (
        math.nan,
        math.nan,
        0,
    )  # limit, level before and count at the last alarm
    hysteresis: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        if not (self.min_effect > 0 or self.min_frac > 0):
            raise ValueError("a leap needs a least size: give min_effect or min_frac, above 0")
        self.hysteresis = Hysteresis(self.confirm)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return self.now
        w = self.window
        self.recent = [*self.recent, value][-2 * w :]
        self.count += 1
        decision = Decision(False)
        if math.isfinite(self.reach):
            before, level = median(self.recent[:w]), median(self.recent[w:])
            limit = before + self.sign * self._min_shift(before)
            line, calm, since = self.at_alarm
            back = self.sign * (level - calm) < bound("clear_frac") * self.sign * (line - calm)
            back |= self.count - since >= self.hold
            above = self.sign * (level - limit) > 0
            decision = self.hysteresis.update(step, above, back, line if self.hysteresis.active else limit)
            if decision.fired:
                self.at_alarm = limit, before, self.count
                decision = replace(decision, fitted=level)
        if self.count % w == 0:
            self.blocks = [*self.blocks, median(self.recent[-w:])][-max(_MIN_MOVES + 1, self.memory // w) :]
            self._measure()
        return decision

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once."""
        indices, w = self.finite(values), self.window
        x = values[indices]
        self.count, self.recent = x.size, x[-2 * w :].tolist()
        if x.size < w:
            return []
        middles = row_medians(np.lib.stride_tricks.sliding_window_view(x, w))
        centres, reaches = self._measured(middles[::w])
        at = np.arange(
            max(2, _MIN_MOVES + 1) * w, x.size
        )  # the first block complete before each value makes it ready
        if not at.size:
            return []
        block = at // w - 1
        before, level = middles[at - 2 * w + 1], middles[at - w + 1]
        drift = np.maximum(self.sign * centres[block], 0.0)
        min_shift = np.maximum(
            np.maximum(reaches[block] + drift, self.min_effect), self.min_frac * np.abs(before)
        )
        limit = before + self.sign * np.where(min_shift > 0, min_shift, math.inf)
        above = self.sign * (level - limit) > 0
        transitions: Transitions = []
        start = 0
        while start < at.size:
            in_force, back = limit[start:], np.zeros(at.size - start, bool)
            if self.hysteresis.active:
                line, calm, since = self.at_alarm
                back = self.sign * (level[start:] - calm) < bound("clear_frac") * self.sign * (line - calm)
                back |= at[start:] + 1 - since >= self.hold
                in_force = np.full(back.size, line)
            hits = self.hysteresis.scan(steps[indices[at[start:]]], above[start:], back, in_force, 1)
            if not hits:
                break
            i, decision = start + hits[0][0], hits[0][1]
            if decision.fired:
                self.at_alarm = float(limit[i]), float(before[i]), int(at[i]) + 1
                decision = replace(decision, fitted=float(level[i]))
            transitions.append((int(indices[at[i]]), decision))
            start = i + 1
        return transitions

    @property
    def now(self) -> Decision:
        """Ready once there are differences enough."""
        return Decision(math.isfinite(self.reach), self.hysteresis.active, since=self.hysteresis.since)

    def _min_shift(self, before: float) -> float:
        """Return the smallest distance that counts.

        Infinite for a level of 0 that never moved, with `min_frac` alone.
        """
        drift = max(self.sign * self.centre, 0.0)
        return max(self.reach + drift, self.min_effect, self.min_frac * abs(before)) or math.inf

    def _measure(self) -> None:
        done = self.count // self.window
        if len(self.blocks) > _MIN_MOVES and (
            done < 4 * _MIN_MOVES or done % 4 == 0
        ):  # later it moves slowly
            self.centre, self.reach = _scatter(self.blocks, self.arl)

    def _measured(self, blocks: Float64) -> tuple[Float64, Float64]:
        """Centre and reach in force after each block, as `_measure` finds them one by one."""
        capacity, medians = max(_MIN_MOVES + 1, self.memory // self.window), blocks.tolist()
        self.blocks = medians[-capacity:]
        done = np.arange(1, blocks.size + 1)
        due = done[(done > _MIN_MOVES) & ((done < 4 * _MIN_MOVES) | (done % 4 == 0))]
        scales = [_scatter(medians[:k], self.arl) for k in due[due < capacity].tolist()]
        if (full := due[due >= capacity]).size:
            moves = np.lib.stride_tricks.sliding_window_view(np.diff(blocks), capacity - 1)[full - capacity]
            middle = row_medians(moves)
            away = row_medians(np.abs(moves - middle[:, None]))
            scales += zip(
                middle.tolist(), (_quantile(self.arl, capacity - 2) * 1.4826 * away).tolist(), strict=True
            )
        values = np.array([(self.centre, self.reach), *scales])
        self.centre, self.reach = values[-1].tolist()
        in_force = values[np.searchsorted(due, done, side="right")]
        return in_force[:, 0], in_force[:, 1]


def _scatter(blocks: list[float], arl: float) -> tuple[float, float]:
    """Median of the differences of neighbouring blocks, and how far from it one is no longer chance."""
    moves = [b - a for a, b in pairwise(blocks)]
    centre = median(moves)
    return centre, _quantile(arl, len(moves) - 1) * 1.4826 * median([abs(move - centre) for move in moves])


@lru_cache(maxsize=1_000)
def _quantile(arl: float, dof: int) -> float:
    return t_quantile(1.0 / arl, dof)
