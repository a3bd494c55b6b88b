"""Drawdown detector: a score falls back from its best, as overfitting and hacking look on evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist, median
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions, walk
from trimtab.typing import Float64, Int64


@dataclass
class Drawdown(Scanner):
    """Drawdown detector.

    Fires when the median of the last three values is worse than the best such median, twice in a row.

    `sign` -1: the best is the highest, a fall fires. +1: the best is the lowest, a rise fires. The distance
    must exceed `min_effect` (the values' unit), `min_frac` of the best's size, and a multiple of a value's
    scatter: the normal quantile of level 1/`arl` plus sqrt(2 ln n), that of a best among n medians. The
    scatter is the largest robust deviation of second differences one and two values apart (last 64 values),
    so trends and bends add nothing. It is for independent values, as evaluations are; autocorrelation makes
    it alarm more often.

    >>> d = Drawdown(sign=-1, min_frac=0.05)
    >>> score = [min(t, 20) / 20 - (0.4 if t >= 60 else 0.0) + (t * 7 % 5) / 100 for t in range(80)]
    >>> [d.update(t, x).fired for t, x in enumerate(score)].index(True)
    62
    """

    carried: ClassVar[tuple[str, ...]] = ("num_skipped", "values", "best", "count", "hysteresis")
    sign: int
    arl: float = field(default_factory=lambda: bound("arl"))
    min_frac: float = 0.0
    min_effect: float = 0.0
    warmup: int = 8
    memory: int = 64
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    best: float = math.nan
    count: int = 0
    hysteresis: Hysteresis = field(default_factory=lambda: Hysteresis(2))

    def __post_init__(self) -> None:
        self._z = NormalDist().inv_cdf(1.0 - 1.0 / self.arl)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return self.now
        self.values = [*self.values, value][-self.memory :]
        self.count += 1
        if len(self.values) < 3:
            return Decision(False)
        level = median(self.values[-3:])
        decision = Decision(False)
        if self.count >= self.warmup:
            reach = self._z + math.sqrt(2.0 * math.log(self.count))
            min_distance = max(
                reach * _scatter(self.values[:-2]), self.min_frac * abs(self.best), self.min_effect
            )
            limit = self.best + self.sign * min_distance
            worse = self.sign * (level - self.best)
            decision = self.hysteresis.update(
                step, worse > min_distance, worse < bound("clear_frac") * min_distance, limit
            )
            decision = replace(decision, fitted=level) if decision.fired else decision
        better = math.isnan(self.best) or self.sign * (level - self.best) < 0
        self.best = level if better else self.best
        return decision

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series: evaluations are few."""
        return walk(self, steps, values)[0]

    @property
    def now(self) -> Decision:
        """Ready after `warmup` values."""
        return Decision(self.count >= self.warmup, self.hysteresis.active, since=self.hysteresis.since)


def _scatter(values: list[float]) -> float:
    """Return the robust deviation of a value about whatever curve it follows; 0 for fewer than five."""
    scatter = 0.0
    for lag in (1, 2):
        bends = [a - 2.0 * b + c for a, b, c in zip(values, values[lag:], values[2 * lag :], strict=False)]
        if len(bends) >= 3:
            scatter = max(scatter, 1.4826 * median(map(abs, bends)) / math.sqrt(6.0))
    return scatter
