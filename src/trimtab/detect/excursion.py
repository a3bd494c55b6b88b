"""A fast, large departure from the best level so far: what a collapse looks like before any long baseline exists."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from statistics import NormalDist, median
from typing import Any

from trimtab.catalog import bound
from trimtab.detect.detector import Decision, Hysteresis

__all__ = ["Excursion"]


@dataclass
class Excursion:
    """Fires when the median of the last `window` values lies beyond `factor` times the calmest block of the last `memory`
    values before (blocks of `window` values, their medians): above it for `sign` +1 (factor > 1), below it for -1 (factor < 1).

    The distance must also exceed the budget's normal deviate times the scatter of a block, taken from the differences of blocks
    one, four and twelve apart, and of neighbouring values while blocks are few (the largest of the robust deviations: slow wander counts, a steady trend does not),
    and for `sign` +1 the value must exceed `floor`. Values are on their own positive scale, not logarithms.

    >>> d = Excursion(sign=-1, factor=0.5)
    >>> [d.update(t, 0.8 + (t % 2) / 20 - (0.7 if t >= 20 else 0.0)).fired for t in range(30)].index(True)
    23
    """

    sign: int
    factor: float
    window: int = 5
    memory: int = 100
    floor: float = -math.inf
    arl: float = field(default_factory=lambda: bound("arl"))
    num_skipped: int = 0
    recent: list[float] = field(default_factory=list)
    moves: list[float] = field(default_factory=list)  # |differences| of the first hundred neighbours
    blocks: list[float] = field(default_factory=list)
    count: int = 0
    limit: float = math.nan
    best: float = math.nan
    scatter: float = 0.0
    edge: Hysteresis = field(default_factory=lambda: Hysteresis(3))

    def __post_init__(self) -> None:
        self._z = NormalDist().inv_cdf(1.0 - 1.0 / self.arl)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(bool(self.blocks), self.edge.active, since=self.edge.since)
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
            best = self.best
            back = self.sign * (now - best) < bound("clear_frac") * self.sign * (self.limit - best)
            decision = self.edge.update(step, above, back, self.limit)
        if self.count % self.window == 0:
            self.blocks = [*self.blocks, now][-max(1, self.memory // self.window) :]
            self._move()
        return decision

    def _move(self) -> None:
        """The limit the next block is held to."""
        best = self.best = min(self.blocks) if self.sign > 0 else max(self.blocks)
        done = self.count // self.window
        if done < 16 or done % 4 == 0:  # it moves slowly once there are many
            single = 1.4826 * median(self.moves) / math.sqrt(2.0) if len(self.blocks) < 8 else 0.0
            self.scatter = max(single, *(_scatter(self.blocks, lag) for lag in (1, 4, 12)))
        reach = self._z + math.sqrt(
            2.0 * math.log(len(self.blocks) + 1.0)
        )  # the calmest of so many is extreme itself
        limits = [best + self.sign * reach * self.scatter, best * self.factor]
        self.limit = max(*limits, self.floor) if self.sign > 0 else min(limits)

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        names = ("num_skipped", "recent", "moves", "blocks", "count", "limit", "best", "scatter")
        return {name: getattr(self, name) for name in names} | {"edge": asdict(self.edge)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        for name, value in state.items():
            setattr(self, name, Hysteresis(**value) if name == "edge" else value)


def _scatter(blocks: list[float], lag: int) -> float:
    """Robust deviation of one block from the differences `lag` blocks apart, their median taken out; 0 for fewer than three."""
    steps = [b - a for a, b in zip(blocks, blocks[lag:], strict=False)]
    if len(steps) < 3:
        return 0.0
    middle = median(steps) if len(steps) > 5 else 0.0
    return 1.4826 * median([abs(x - middle) for x in steps]) / math.sqrt(2.0)
