"""Mean-shift detector: a change of level against the series' own past, at several time scales.

At step t and scale n the mean of the last n values is compared with the up to `memory` values before
(`mean_difference`). A scale fires above the normal quantile of level max(1, n/25) / (K arl) for K scales:
neighbouring tests of a long window are nearly the same test. Both halves of the window must share the
movement, so one outlier does not fire.

Values are winsorized at median +/- 4 robust standard deviations (1.4826 MAD, last 100 values) before testing;
`num_clipped` counts the values changed. Where more than half of those values are equal, the MAD is 0: the
limit is then four mean absolute deviations (times 1.2533), and includes the median of the newest five values,
so that a flat level may move. Stationary AR(1) series with phi up to 0.8 and light or heavy tails stay below
one alarm in `arl` values (docs/explanation/detectors.md says what is not covered).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Scanner, Transitions
from trimtab.detect.detectors.mean_shift.series_scan import NEWEST, transitions_of, winsorized
from trimtab.detect.detectors.mean_shift.statistic import FLOATS, MeanDifference, mean_difference
from trimtab.detect.detectors.mean_shift.window_schedule import (
    LENIENT,
    cumulated,
    first_test,
    gather,
    stride,
    z_scores,
)
from trimtab.typing import Float64, Int64

SCALES = (8, 16, 32, 64, 128, 256)
_EVERY, _PAST, _LIMIT = 25, 100, 4.0  # how often the limits move, values they rest on, deviations
_ROUNDING = bound("rounding")
# Values kept, and how many more are held before the oldest are let go: multiples of _EVERY and of every
# stride.
_KEPT, _SPARE = 800, 400


@dataclass
class MeanShift(Scanner):
    """Two-window mean-shift detector. Fires when the level moves up (`sign` +1), down (-1) or either way (0).

    `arl` is values between false alarms. Movements under `min_sd` standard deviations, `min_effect` (the
    values' unit) or `min_frac` of the level are ignored. `lenient`: a trend already there, in the watched
    direction, is expected to go on. `since` is the first step of the window that broke the bound; `fitted`
    its mean.

    >>> d = MeanShift(sign=1, arl=1e5)
    >>> fired = [d.update(t, (t % 3) / 10 + (2.0 if t >= 60 else 0.0)).fired for t in range(80)]
    >>> fired.index(True)
    66
    """

    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    lenient: bool = False
    min_sd: float = 0.5
    min_effect: float = 0.0
    min_frac: float = 0.0
    memory: int = 256
    min_reference: int = 40
    scales: tuple[int, ...] = SCALES
    num_skipped: int = 0
    num_clipped: int = 0
    active: bool = False
    since: int = -1
    raw: array[float] = field(default_factory=lambda: array("d"))
    steps: array[int] = field(default_factory=lambda: array("q"))

    def __post_init__(self) -> None:
        self._schedule = [
            (k, n, stride(n), first_test(n, self.min_reference))
            for k, n in enumerate(self.scales)
            if not (self.lenient and n > LENIENT)
        ]
        self._z = z_scores(self.arl, self.scales, 2 if self.sign == 0 else 1)
        self._base: float = math.nan
        self._stays: list[bool] = []
        self._start((), self.raw, math.nan)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(self.is_ready, self.active, since=self.since)
        if len(self.raw) >= _KEPT + _SPARE:
            clipped = [x + self._base for x in self._x[_SPARE:]]
            self.raw, self.steps = self.raw[_SPARE:], self.steps[_SPARE:]
            stays = self._stays
            self._start(clipped, self.raw, self._base)
            self._stays = stays
        if len(self.raw) % _EVERY == 0:
            self._limits = self._limit(self.raw[-_PAST:])
            if len(self.raw) == _EVERY and self.is_late:
                self._clip_first()
        self.raw.append(value)
        self.steps.append(step)
        low, high, flat = self._limits
        if flat:
            newest = median(self.raw[-NEWEST:])
            low, high = min(low, newest), max(high, newest)
        taken = min(max(value, low), high)
        self.num_clipped += taken != value
        self._push(taken)
        return self._evaluate(len(self.raw)) if self.is_ready else Decision(False)

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once, by a detector that has seen nothing."""
        steps, values = np.asarray(steps), np.asarray(values, np.float64)
        indices = self.finite(values)
        if not indices.size:
            return []
        at, raw = steps[indices], values[indices]
        clipped = winsorized(self, raw, _EVERY, _PAST)
        self.num_clipped += int(np.count_nonzero(clipped != raw))
        ready = raw.size >= self.min_reference + self.scales[0]
        transitions = transitions_of(self, at, clipped) if ready else []
        num_kept = _KEPT + raw.size % _SPARE  # as much as the stream holds at least, its tests in step
        self.raw, self.steps = array("d", raw[-num_kept:].tolist()), array("q", at[-num_kept:].tolist())
        self._start(clipped[-num_kept:].tolist(), self.raw, float(raw[0]))
        for k, n, step, first in self._schedule:
            latest = len(self.raw) - len(self.raw) % step
            if latest >= first:
                self._test(latest, k, n)
        return [(int(indices[i]), decision) for i, decision in transitions]

    @property
    def now(self) -> Decision:
        """Ready once the reference is long enough for the shortest test."""
        return Decision(self.is_ready, self.active, since=self.since)

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        clipped = [x + self._base for x in self._x]
        return {
            "raw": list(self.raw), "steps": list(self.steps), "num_skipped": self.num_skipped,
            "num_clipped": self.num_clipped,
            "clipped": clipped, "active": self.active, "since": self.since, "base": self._base,
            "stays": list(self._stays),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.raw, self.steps = array("d", state["raw"]), array("q", state["steps"])
        self.num_skipped, self.num_clipped = state["num_skipped"], state["num_clipped"]
        self.active, self.since = state["active"], state["since"]
        self._start(state["clipped"], self.raw, state["base"])
        self._stays = list(state["stays"])

    @property
    def is_ready(self) -> bool:
        """Is the reference long enough for the shortest test?"""
        return len(self.raw) >= self.min_reference + self.scales[0]

    def _start(self, clipped: Sequence[float], raw: Sequence[float], base: float) -> None:
        """Begin again with these values, already winsorized."""
        x = np.array(clipped, np.float64) - (base if clipped else 0.0)
        self._x = array("d", x.tobytes())
        self._stays = [False] * len(self.scales)
        self._sums = [array("d", row.tobytes()) for row in cumulated(x)]
        self._base = base
        at = len(raw) - len(raw) % _EVERY
        self._limits = self._limit(raw[max(0, at - _PAST) : at])

    @property
    def is_late(self) -> bool:
        """Does the first test come after the first limits? Then they hold for the values they rest on too."""
        return self.min_reference + self.scales[0] > _EVERY

    def _clip_first(self) -> None:
        low, high, _ = self._limits
        clipped = [min(max(x, low), high) for x in self.raw]
        self.num_clipped += sum(x != y for x, y in zip(clipped, self.raw, strict=True))
        limits = self._limits
        self._start(clipped, self.raw, clipped[0])
        self._limits = limits

    def _limit(self, past: Sequence[float]) -> tuple[float, float, bool]:
        """Return the smallest and largest value left unclipped, and whether most values were equal."""
        if len(past) < _EVERY:
            return -math.inf, math.inf, False
        middle = median(past)
        away = [abs(x - middle) for x in past]
        spread = median(away)
        clip_limit = float(self.clip_limit(middle, spread, math.fsum(away) / len(away), FLOATS))
        return middle - clip_limit, middle + clip_limit, spread == 0.0

    def clip_limit(self, middle: Any, spread: Any, mean: Any, on: Any) -> Any:
        """Return four deviations (MAD, or mean deviation where it is 0), at least two smallest movements."""
        deviation = on.where(spread > 0.0, 1.4826 * spread, 1.2533 * mean)
        min_limit = on.maximum(_LIMIT * deviation, 2.0 * self.min_effect)
        return on.maximum(min_limit, 2.0 * self.min_frac * abs(middle))

    def _push(self, value: float) -> None:
        t = len(self._x)
        self._base = value if t == 0 and math.isnan(self._base) else self._base
        x = value - self._base
        self._x.append(x)
        new = (x, x * x, t * x, x * self._x[t - 1] if t else 0.0, x * self._x[t - 4] if t >= 4 else 0.0)
        for row, one in zip(self._sums, new, strict=True):
            row.append(row[-1] + one)

    def _evaluate(self, end: int) -> Decision:
        """Test every scale at the newest value."""
        best: tuple[float, int, MeanDifference] | None = None
        for k, n, step, first in self._schedule:
            if end < first:
                break
            difference = None if end % step else self._test(end, k, n)
            if difference is not None and (best is None or abs(difference.score) > best[0]):
                best = (abs(difference.score), k, difference)
        if self.active:
            if any(self._stays):
                return Decision(True, True, since=self.since)
            self.active = False
            return Decision(True, cleared=True, since=self.since)
        if best is None:
            return Decision(True)
        return self.fire(best[1], best[2], self.steps[end - self.scales[best[1]]], self._base)

    def _test(self, end: int, k: int, n: int) -> MeanDifference | None:
        """Test scale k: set whether it keeps an alarm up, return its comparison where it breaks the bound."""
        if self._other_way(end, n):
            self._stays[k] = False
            return None
        sums = gather(self._sums, self._x, end, n, max(0, end - n - self.memory))
        difference = mean_difference(sums, FLOATS, self.sign, self.lenient)
        above, self._stays[k] = self.judge(difference, self._z[k], self._base, FLOATS)
        return difference if above else None

    def _other_way(self, end: int, n: int) -> bool:
        """Does the window lie on the harmless side of every level it may be compared with?"""
        if not self.sign:
            return False
        total, r = self._sums[0], end - n
        s = max(0, r - self.memory)
        middle = s + (r - s) // 2
        test = self.sign * (total[end] - total[r]) / n
        mean, later = (total[r] - total[s]) / (r - s), (total[r] - total[middle]) / (r - middle)
        return bool(test < min(self.sign * mean, self.sign * later))

    def judge(self, difference: MeanDifference, z: Any, base: float, on: Any) -> tuple[Any, Any]:
        """Does this test break the bound `z`, a z-score; does it keep an alarm up?"""
        smallest = on.maximum(self.min_effect, self.min_sd * difference.scatter)
        smallest = on.maximum(smallest, max(self.min_frac, _ROUNDING) * abs(difference.level + base))
        side = on.where(difference.shift < 0, -1.0, 1.0) if self.sign == 0 else self.sign
        score, shift, half = side * difference.score, side * difference.shift, bound("clear_frac")
        return (score > z) & (shift > smallest), (score > half * z) & (shift > half * smallest)

    def fire(self, k: int, difference: MeanDifference, since: int, base: float) -> Decision:
        """Start an alarm of scale k; its bound is the level plus the smallest shift that fires."""
        self.active, self.since = True, since
        min_shift = max(abs(difference.shift) * self._z[k] / abs(difference.score), self.min_effect)
        level = difference.level + base
        limit = level + math.copysign(min_shift, difference.shift)
        return Decision(True, True, True, since=self.since, bound=limit, fitted=level + difference.shift)
