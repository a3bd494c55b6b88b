"""A single wild value, and a plateau that ends in a jump."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from trimtab.catalog import bound
from trimtab.detect.detector import Decision

__all__ = ["Jump", "Spike"]

_MOVE = 10  # values between moves of the edge


@dataclass
class Spike:
    """Fires on one value beyond everything the last `memory` values prepare for; clears after `quiet` values without.

    The excess over the median is compared with the Pareto quantile of level 1/arl whose shape is Hill's estimate from
    the largest tenth of the past excesses (at least 0.25, a tail of four moments), anchored at the tenth's edge. A series that
    has always thrown wild values therefore needs a wilder one.

    >>> d = Spike(arl=1000.0, warmup=30)
    >>> [d.update(t, (t * 37 % 11) / 10 + (50.0 if t == 40 else 0.0)).fired for t in range(50)].index(True)
    40
    """

    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    warmup: int = 40
    memory: int = 200
    quiet: int = 10
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    active: int = 0  # values left until it clears
    since: int = -1
    count: int = 0
    edge: float = math.nan

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.warmup, self.active > 0, since=self.since)
        edge = self.edge
        self.values.append(value)
        del self.values[: -self.memory]
        self.count += 1
        if len(self.values) >= self.warmup and (math.isnan(edge) or self.count % _MOVE == 0):
            self.edge = self._edge()
        if math.isnan(edge):
            return Decision(False)
        if self.sign * (value - edge) > 0:
            fired = self.active == 0
            self.active, self.since = self.quiet, step if fired else self.since
            return Decision(True, True, fired, since=self.since, bound=edge)
        if self.active:
            self.active -= 1
            if not self.active:
                return Decision(True, cleared=True, since=self.since, bound=edge)
        return Decision(True, self.active > 0, since=self.since, bound=edge)

    def _edge(self) -> float:
        """The value that one in arl stays under, by the Pareto tail of what has been seen."""
        middle = median(self.values)
        excess = sorted((self.sign * (x - middle) for x in self.values), reverse=True)
        top = max(5, len(excess) // 10)
        anchor = max(excess[top], 1e-300)
        shape = math.fsum(math.log(max(x, anchor) / anchor) for x in excess[:top]) / top
        shape = max(shape * (1.0 + 1.0 / math.sqrt(top)), 0.25)
        spread = median([abs(x) for x in excess]) * 1.4826
        quantile: float = anchor * (top / len(excess) * self.arl) ** shape
        return middle + self.sign * max(quantile, 8.0 * spread)

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        names = ("num_skipped", "values", "active", "since", "count", "edge")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        for name, value in state.items():
            setattr(self, name, list(value) if name == "values" else value)


@dataclass
class Jump:
    """Fires when a series that stood still for `plateau` values moves within `window` by `factor` times the plateau's range.

    What grokking looks like: information, as a rule. `sign` +1 for a jump upwards.

    >>> d = Jump(plateau=30, window=10)
    >>> [d.update(t, 0.1 + (t % 2) / 100 + (0.5 if t >= 50 else 0.0)).fired for t in range(70)].index(True)
    57
    """

    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    plateau: int = 100
    window: int = 10
    factor: float = 5.0
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    active: int = 0
    since: int = -1
    count: int = 0

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.plateau + self.window, self.active > 0, since=self.since)
        self.values.append(value)
        del self.values[: -(self.plateau + self.window)]
        self.count += 1
        if len(self.values) < self.plateau + self.window:
            return Decision(False)
        if self.active:
            self.active -= 1
            return Decision(True, self.active > 0, cleared=self.active == 0, since=self.since)
        if self.count % 2:
            return Decision(True)
        before, now = self.values[: self.plateau], self.values[self.plateau :]
        spread = max(before) - min(before)
        if self.sign * (now[-1] - before[-1]) < 2.0 * spread:  # far from it, most of the time
            return Decision(True)
        half = self.plateau // 2
        drift = abs(math.fsum(before[half:]) / (len(before) - half) - math.fsum(before[:half]) / half)
        limit = median(before) + self.sign * self.factor * spread
        beyond = sum(self.sign * (x - limit) > 0 for x in now)
        if spread > 0 and drift < 0.25 * spread and beyond >= 0.8 * self.window:
            self.active, self.since = self.plateau, step - self.window + 1
            return Decision(True, True, True, since=self.since, bound=limit)
        return Decision(True, bound=limit)

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        names = ("num_skipped", "values", "active", "since", "count")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        for name, value in state.items():
            setattr(self, name, list(value) if name == "values" else value)
