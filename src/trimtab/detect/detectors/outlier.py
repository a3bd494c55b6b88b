"""Outlier detector: a single extreme value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Scanner, Transitions
from trimtab.stats.array_kernels import row_medians
from trimtab.typing import Float64, Int64

_MOVE = 10  # values between moves of the edge


@dataclass
class Outlier(Scanner):
    """Outlier detector.

    Fires on one value beyond the tail of the last `memory` values; clears after `quiet` values without.

    The excess over the median is compared with the Pareto quantile of level 1/arl. Its shape is Hill's
    estimate from the largest tenth of past excesses (at least 0.25, a tail of four moments), anchored at the
    end of that tenth. A series with many outliers therefore needs a larger one, up to `ratio` times a
    positive median.

    >>> d = Outlier(arl=1000.0, warmup=30)
    >>> [d.update(t, (t * 37 % 11) / 10 + (50.0 if t == 40 else 0.0)).fired for t in range(50)].index(True)
    40
    """

    carried: ClassVar[tuple[str, ...]] = ("num_skipped", "values", "active", "since", "count", "limit")
    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    warmup: int = 40
    memory: int = 200
    quiet: int = 10
    ratio: float = math.inf
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    active: int = 0  # values left until it clears
    since: int = -1
    count: int = 0
    limit: float = math.nan

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.warmup, self.active > 0, since=self.since)
        limit = self.limit
        self.values.append(value)
        del self.values[: -self.memory]
        self.count += 1
        if len(self.values) >= self.warmup and (math.isnan(limit) or self.count % _MOVE == 0):
            self.limit = self._limit(self.values)
        if math.isnan(limit):
            return Decision(False)
        if self.sign * (value - limit) > 0:
            fired = self.active == 0
            self.active, self.since = self.quiet, step if fired else self.since
            return Decision(True, True, fired, since=self.since, bound=limit)
        if self.active:
            self.active -= 1
            if not self.active:
                return Decision(True, cleared=True, since=self.since, bound=limit)
        return Decision(True, self.active > 0, since=self.since, bound=limit)

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """Run `update` over a whole series: exact limits only where a value may lie beyond them."""
        indices = self.finite(values)
        x, n = values[indices], indices.size
        self.count, self.values = n, x[-self.memory :].tolist()
        if n < self.warmup or self.memory < self.warmup:
            return []
        moves = np.arange(self.warmup, n + 1)  # how many values each edge rests on
        moves = moves[(moves == self.warmup) | (moves % _MOVE == 0)]
        exact: dict[int, float] = {}

        def limit(i: int) -> float:
            """The edge in force at value i."""
            count = int(moves[np.searchsorted(moves, i, side="right") - 1])
            if count not in exact:
                exact[count] = self._limit(x[max(0, count - self.memory) : count].tolist())
            return exact[count]

        self.limit = limit(n)
        rough = self._rough_limits(x, moves)[
            np.searchsorted(moves, np.arange(self.warmup, n), side="right") - 1
        ]
        over = self.sign * (x[self.warmup :] - rough)
        suspects = self.warmup + np.flatnonzero(~(over < -1e-9 * (np.abs(x[self.warmup :]) + np.abs(rough))))
        beyond = [i for i in suspects.tolist() if self.sign * (float(x[i]) - limit(i)) > 0]
        transitions: Transitions = []
        for i, after in zip(beyond, [*beyond[1:], n + self.quiet], strict=False):
            if not self.active:
                self.since = int(steps[indices[i]])
                transitions.append(
                    (int(indices[i]), Decision(True, True, True, since=self.since, bound=limit(i)))
                )
            end = i + self.quiet
            self.active = self.quiet if after <= end else max(0, end - n + 1)
            if after > end and end < n:
                transitions.append(
                    (int(indices[end]), Decision(True, cleared=True, since=self.since, bound=limit(end)))
                )
        return transitions

    @property
    def now(self) -> Decision:
        """Ready once an edge stands that a value was held against."""
        ready = self.count > self.warmup and not math.isnan(self.limit)
        return Decision(ready, self.active > 0, since=self.since)

    def _rough_limits(self, x: Float64, moves: Int64) -> Float64:
        """Return every limit, to rounding; infinite where it is out of range."""
        few = [self._limit(x[:count].tolist()) for count in moves[moves < self.memory].tolist()]
        full = moves[moves >= self.memory] - self.memory
        if not full.size:
            return np.array(few)
        n = self.memory
        windows = np.sort(np.lib.stride_tricks.sliding_window_view(x, n)[full], axis=1)
        middle = (windows[:, (n - 1) // 2] + windows[:, n // 2]) / 2
        excess = np.sort(self.sign * (windows - middle[:, None]), axis=1)[:, ::-1]
        top = max(5, n // 10)
        anchor = np.maximum(excess[:, top], 1e-300)
        with np.errstate(over="ignore"):
            shape = np.log(np.maximum(excess[:, :top], anchor[:, None]) / anchor[:, None]).sum(axis=1) / top
            shape = np.maximum(shape * (1.0 + 1.0 / math.sqrt(top)), 0.25)
            quantile = anchor * (top / n * self.arl) ** shape
        spread = row_medians(np.abs(excess)) * 1.4826
        limits = middle + self.sign * np.maximum(quantile, 8.0 * spread)
        return np.append(few, np.where(middle > 0, np.minimum(limits, self._ratio_limit(middle)), limits))

    def _limit(self, values: list[float]) -> float:
        """The value that one in arl stays under, by the Pareto tail of what has been seen."""
        middle = median(values)
        excess = sorted((self.sign * (x - middle) for x in values), reverse=True)
        top = max(5, len(excess) // 10)
        anchor = max(excess[top], 1e-300)
        shape = math.fsum(math.log(max(x, anchor) / anchor) for x in excess[:top]) / top
        shape = max(shape * (1.0 + 1.0 / math.sqrt(top)), 0.25)
        spread = median([abs(x) for x in excess]) * 1.4826
        try:
            quantile: float = anchor * (top / len(excess) * self.arl) ** shape
        except OverflowError:  # outliers among equal values: nothing exceeds such a tail
            quantile = math.inf
        limit = middle + self.sign * max(quantile, 8.0 * spread)
        return min(limit, float(self._ratio_limit(middle))) if middle > 0 else limit

    def _ratio_limit(self, middle: Any) -> Any:
        """Return the largest value over a positive median that does not fire.

        Infinite where there is none.
        """
        return middle * self.ratio if self.sign > 0 and math.isfinite(self.ratio) else math.inf
