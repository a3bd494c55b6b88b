"""Excursion detector: a fast, large departure from the best level, before any long baseline exists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist, median
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions
from trimtab.stats.array_kernels import row_medians
from trimtab.typing import Float64, Int64


@dataclass
class Excursion(Scanner):
    """Relative-departure detector.

    Compares the median of the last `window` values with the calmest block of the last `memory` values.

    Blocks are `window` values, taken by their medians. It fires when the median lies beyond `factor` times
    that block `confirm` times in a row: above it for `sign` +1 (factor > 1), below it for -1 (factor < 1).
    The distance must also exceed the budget's normal quantile times the scatter of a block. The scatter is
    the largest robust deviation of differences of blocks one, four and twelve apart, and of neighbouring
    values while blocks are few: slow wander counts, a steady trend does not. A block beyond the factor does
    not raise the scatter. For `sign` +1 the value must exceed `floor` too. Values are on their own positive
    scale, not logarithms; downwards it does not fire while the best is 0 or less, where a share means
    nothing. From an alarm on, best and limit stay fixed. It ends when the level is back, or after `memory`
    values. The first `warmup` values are not judged.

    >>> d = Excursion(sign=-1, factor=0.5)
    >>> [d.update(t, 0.8 + (t % 2) / 20 - (0.7 if t >= 20 else 0.0)).fired for t in range(30)].index(True)
    24
    """

    carried: ClassVar[tuple[str, ...]] = (
        "num_skipped", "recent", "moves", "blocks", "count", "limit", "best", "scatter", "hysteresis",
        "at_alarm", "skipped",
    )  # fmt: skip
    sign: int
    factor: float
    window: int = 5
    memory: int = 100
    floor: float = -math.inf
    arl: float = field(default_factory=lambda: bound("arl"))
    confirm: int = 3
    warmup: int = 0
    num_skipped: int = 0
    recent: list[float] = field(default_factory=list)
    moves: list[float] = field(default_factory=list)  # |differences| of the first hundred neighbours
    blocks: list[float] = field(default_factory=list)
    count: int = 0
    limit: float = math.nan
    best: float = math.nan
    scatter: float = 0.0
    at_alarm: tuple[float, float, int] = (math.nan, math.nan, 0)  # limit, best and count of the last alarm
    skipped: int = 0  # of the warm-up
    hysteresis: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        self.hysteresis = Hysteresis(self.confirm)
        self._z = NormalDist().inv_cdf(1.0 - 1.0 / self.arl)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(bool(self.blocks), self.hysteresis.active, since=self.hysteresis.since)
        if self.skipped < self.warmup:
            self.skipped += 1
            return Decision(False)
        if self.recent and len(self.moves) < 100:
            self.moves.append(abs(value - self.recent[-1]))
        self.recent = [*self.recent, value][-self.window :]
        self.count += 1
        if len(self.recent) < self.window:
            return Decision(False)
        now = sorted(self.recent)[self.window // 2]
        decision = Decision(False)
        if self.blocks:
            above = self.sign * (now - self.limit) > 0
            limit, best, since = self.at_alarm
            back = self.sign * (now - best) < bound("clear_frac") * self.sign * (limit - best)
            back |= self.count - since >= self.memory
            decision = self.hysteresis.update(
                step, above, back, limit if self.hysteresis.active else self.limit
            )
            if decision.fired:
                self.at_alarm = self.limit, self.best, self.count
                decision = replace(decision, fitted=now)
        if self.count % self.window == 0:
            beyond = bool(self.blocks) and self.sign * (now - self.best * self.factor) > 0
            self.blocks = [*self.blocks, now][-max(1, self.memory // self.window) :]
            self._move(beyond)
        return decision

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once."""
        indices, w = self.finite(values), self.window
        self.skipped = min(self.warmup, indices.size)
        indices = indices[self.warmup :]
        x = values[indices]
        self.count, self.recent = x.size, x[-w:].tolist()
        self.moves = np.abs(np.diff(x[:101])).tolist()
        if x.size < w:
            return []
        middles = np.partition(np.lib.stride_tricks.sliding_window_view(x, w), w // 2, axis=1)[:, w // 2]
        limits, bests = self._limits(middles[::w])
        block = np.arange(w, x.size) // w - 1  # the last one complete before each value
        limit, best, later = limits[block], bests[block], middles[1:]
        above = self.sign * (later - limit) > 0
        transitions, start, at = [], 0, steps[indices[w:]]
        while start < later.size:
            in_force = limit[start:]
            back = np.zeros(later.size - start, bool)
            if self.hysteresis.active:
                line, calm, since = self.at_alarm
                back = self.sign * (later[start:] - calm) < bound("clear_frac") * self.sign * (line - calm)
                back |= np.arange(start, later.size) + w + 1 - since >= self.memory
                in_force = np.full(back.size, line)
            hits = self.hysteresis.scan(at[start:], above[start:], back, in_force, 1)
            if not hits:
                break
            i, decision = start + hits[0][0], hits[0][1]
            if decision.fired:
                self.at_alarm = float(limit[i]), float(best[i]), i + w + 1
                decision = replace(decision, fitted=float(later[i]))
            transitions.append((int(indices[w + i]), decision))
            start = i + 1
        return transitions

    @property
    def now(self) -> Decision:
        """Ready from the second block on."""
        return Decision(self.count > self.window, self.hysteresis.active, since=self.hysteresis.since)

    def _limits(self, blocks: Float64) -> tuple[Float64, Float64]:
        """The limit and the calmest level after each block, as `_move` finds them one by one."""
        capacity = max(1, self.memory // self.window)
        calmest = np.minimum if self.sign > 0 else np.maximum
        padded = np.append(np.full(capacity - 1, self.sign * math.inf), blocks)
        bests = calmest.reduce(np.lib.stride_tricks.sliding_window_view(padded, capacity), axis=1)
        sizes = np.minimum(np.arange(1, blocks.size + 1), capacity)
        reach = np.array([self._z + math.sqrt(2.0 * math.log(n + 1.0)) for n in range(1, capacity + 1)])[
            sizes - 1
        ]
        beyond = np.append(False, self.sign * (blocks[1:] - bests[:-1] * self.factor) > 0)
        scatter = self._scatters(blocks, capacity, beyond)
        limits = bests + self.sign * reach * scatter, bests * self.factor
        low = np.where(bests > 0, np.minimum(*limits), -math.inf)
        limit = np.maximum(np.maximum(*limits), self.floor) if self.sign > 0 else low
        self.blocks = blocks[-capacity:].tolist()
        self.limit, self.best, self.scatter = float(limit[-1]), float(bests[-1]), float(scatter[-1])
        return np.asarray(limit), np.asarray(bests)

    def _scatters(self, blocks: Float64, capacity: int, beyond: npt.NDArray[np.bool_]) -> Float64:
        """The scatter in force after each block."""
        done = np.arange(1, blocks.size + 1)
        due = done[(done < 16) | (done % 4 == 0)]
        scatters = np.zeros(due.size)
        for i, k in enumerate(due[due < capacity].tolist()):
            scatters[i] = max(_scatter(blocks[:k].tolist(), lag) for lag in (1, 4, 12))
        full = due[due >= capacity]
        at, rows = due.size - full.size, max(1, 1_000_000 // capacity)
        views = np.lib.stride_tricks.sliding_window_view(blocks, capacity) if full.size else blocks
        for i in range(0, full.size, rows):
            part = views[full[i : i + rows] - capacity]
            widths = [_row_scatters(part, lag) for lag in (1, 4, 12)]
            scatters[at + i : at + i + rows] = np.maximum(np.maximum(*widths[:2]), widths[2])
        few = due[np.minimum(due, capacity) < 8]
        for i, k in enumerate(few.tolist()):
            scatters[i] = max(scatters[i], self._single(self.moves[: k * self.window - 1]))
        scatters_list = scatters.tolist()
        for i in np.flatnonzero(beyond[due - 1]).tolist():
            scatters_list[i] = min(scatters_list[i], scatters_list[i - 1])
        return np.array(scatters_list)[np.searchsorted(due, done, side="right") - 1]

    def _single(self, moves: list[float]) -> float:
        """Robust deviation of one value from the differences of neighbours."""
        return 1.4826 * median(moves) / math.sqrt(2.0)

    def _move(self, beyond: bool) -> None:
        """The limit the next block is held to, after one that lay within the factor or not."""
        best = self.best = min(self.blocks) if self.sign > 0 else max(self.blocks)
        done = self.count // self.window
        if done < 16 or done % 4 == 0:  # it moves slowly once there are many
            single = self._single(self.moves) if len(self.blocks) < 8 else 0.0
            scatter = max(single, *(_scatter(self.blocks, lag) for lag in (1, 4, 12)))
            self.scatter = min(scatter, self.scatter) if beyond else scatter
        reach = self._z + math.sqrt(
            2.0 * math.log(len(self.blocks) + 1.0)
        )  # the calmest of so many is extreme itself
        limits = [best + self.sign * reach * self.scatter, best * self.factor]
        self.limit = max(*limits, self.floor) if self.sign > 0 else min(limits) if best > 0 else -math.inf


def _scatter(blocks: list[float], lag: int) -> float:
    """Return the robust deviation of a block from differences `lag` apart, less their median.

    0 for fewer than three.
    """
    steps = [b - a for a, b in zip(blocks, blocks[lag:], strict=False)]
    if len(steps) < 3:
        return 0.0
    middle = median(steps) if len(steps) > 5 else 0.0
    return 1.4826 * median([abs(x - middle) for x in steps]) / math.sqrt(2.0)


def _row_scatters(windows: Float64, lag: int) -> Float64:
    """`_scatter` of every row."""
    steps = windows[:, lag:] - windows[:, :-lag]
    if steps.shape[1] < 3:
        return np.zeros(len(windows))
    middle = row_medians(steps)[:, None] if steps.shape[1] > 5 else 0.0
    return np.asarray(1.4826 * row_medians(np.abs(steps - middle)) / math.sqrt(2.0))
