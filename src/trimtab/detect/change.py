"""A change of level against the series' own past, at several time scales, with a stated false-alarm budget.

At step t and scale n the mean of the last n values is compared with the up to `memory` values before them (`contrast`). A
scale fires above the normal deviate of level max(1, n/25) / (K arl), K scales: neighbouring looks of a long window are nearly
the same look. Both halves of the window must share the movement, so that one wild value is no change; values are drawn in
to four robust deviations (1.4826 MAD of the last 100) of the median first, so that wild values do not inflate the scatter
either. Alarms of stationary AR(1) series with phi up to 0.8 and light or heavy tails stay below one in `arl` values; at 0.95
they reach about two (docs/detectors.md has the table).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist, median
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.detect.contrast import ARRAYS, FLOATS, Contrast, Sums, contrast
from trimtab.detect.detector import Decision

__all__ = ["SCALES", "Change"]

Float = npt.NDArray[np.float64]
SCALES = (8, 16, 32, 64, 128, 256)
_LENIENT = 128  # the longest window over which a trend is carried on
_EVERY, _LOOK, _LIMIT = 25, 100, 4.0  # how often the limits move, values they rest on, robust deviations
# Values held before the older half is let go: halves are multiples of _EVERY and of every stride.
_ROOM = 2_400


@dataclass
class Change:
    """Fires when the level moves up (`sign` +1), down (-1) or either way (0) against the up to `memory` values before.

    `arl`: values between false alarms. A movement under `min_sd` scatters, `min_effect` (the values' unit) or `min_frac` of
    the level is left alone. `lenient`: a trend already there, in the direction watched, is expected to go on. `since` is the first
    step of the window that broke the bound; `fitted` its mean.

    >>> d = Change(sign=1, arl=1e5)
    >>> fired = [d.update(t, (t % 3) / 10 + (2.0 if t >= 60 else 0.0)).fired for t in range(80)]
    >>> fired.index(True)
    64
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
    active: bool = False
    since: int = -1
    raw: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._base: float = math.nan
        self._stays: list[bool] = []
        self._start([], [], math.nan)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(self.is_ready, self.active, since=self.since)
        if len(self.raw) >= _ROOM:
            half = _ROOM // 2
            raw, drawn = self.raw[half:], [x + self._base for x in self._x[half:]]
            self.raw, self.steps = raw, self.steps[half:]
            stays = self._stays
            self._start(drawn, raw, self._base)
            self._stays = stays
        if len(self.raw) % _EVERY == 0:
            self._limits = self._limit(self.raw[-_LOOK:])
        self.raw.append(value)
        self.steps.append(step)
        middle, width = self._limits
        self._push(min(max(value, middle - width), middle + width))
        return self._look(len(self.raw)) if self.is_ready else Decision(False)

    def scan(self, steps: list[int], values: list[float]) -> list[tuple[int, Decision]]:
        """`update` for a whole series at once, by a detector that has seen nothing: (index, decision) where an alarm
        starts or ends."""
        places = [i for i, v in enumerate(values) if math.isfinite(v)]
        self.num_skipped += len(values) - len(places)
        self.raw, self.steps = [values[i] for i in places], [steps[i] for i in places]
        if not self.is_ready:
            return []
        base = self.raw[0]
        x = _drawn(np.array(self.raw), self._reach) - base
        ends = np.arange(self.min_reference + self.scales[0], x.size + 1)
        over, kept = np.zeros(ends.size, bool), np.zeros(ends.size, bool)
        looks: list[tuple[int, Any, Contrast]] = []
        cumulated = _cumulated(x)
        for k, n in enumerate(self.scales):
            due = ends[(ends >= n + max(n, self.min_reference)) & (ends % _stride(n) == 0)]
            if not due.size or (self.lenient and n > _LENIENT):
                break
            found = contrast(_windows(cumulated, x, due, n, self.memory), ARRAYS, self.sign, self.lenient)
            above, stays = self._judge(found, k, base, ARRAYS)
            over[due - ends[0]] |= above
            latest = np.searchsorted(due, ends, side="right") - 1
            kept |= (latest >= 0) & stays[latest]
            looks.append((k, due, found))
        return self._edges(places, ends, over, kept, looks, base)

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        drawn = [x + self._base for x in self._x]
        return {
            "raw": list(self.raw), "steps": list(self.steps), "num_skipped": self.num_skipped, "drawn": drawn,
            "active": self.active, "since": self.since, "base": self._base, "stays": list(self._stays),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.raw, self.steps = list(state["raw"]), list(state["steps"])
        self.num_skipped, self.active, self.since = state["num_skipped"], state["active"], state["since"]
        self._start(state["drawn"], self.raw, state["base"])
        self._stays = list(state["stays"])

    @property
    def is_ready(self) -> bool:
        """Is the reference long enough for the shortest look?"""
        return len(self.raw) >= self.min_reference + self.scales[0]

    def _start(self, drawn: list[float], raw: list[float], base: float) -> None:
        """Begin again with these values, already drawn in."""
        self._x: list[float] = []
        self._stays = [False] * len(self.scales)
        self._sums: list[list[float]] = [[0.0], [0.0], [0.0], [0.0], [0.0]]
        self._base = base
        for value in drawn:
            self._push(value)
        at = len(raw) - len(raw) % _EVERY
        self._limits = self._limit(raw[max(0, at - _LOOK) : at])

    def _limit(self, past: list[float]) -> tuple[float, float]:
        """Median of the past values and how far from it a value is taken as it is; everything passes while there are few."""
        if len(past) < _EVERY:
            return 0.0, math.inf
        middle = median(past)
        return middle, float(self._reach(middle, median([abs(x - middle) for x in past])))

    def _reach(self, middle: float, spread: float) -> float:
        """Four robust deviations, and room for a movement of the smallest size that counts."""
        return max(_LIMIT * 1.4826 * spread, 2.0 * self.min_effect, 2.0 * self.min_frac * abs(middle))

    def _push(self, value: float) -> None:
        t, x = len(self._x), 0.0
        self._base = value if t == 0 and math.isnan(self._base) else self._base
        x = value - self._base
        self._x.append(x)
        new = (x, x * x, t * x, x * self._x[t - 1] if t else 0.0, x * self._x[t - 4] if t >= 4 else 0.0)
        for row, one in zip(self._sums, new, strict=True):
            row.append(row[-1] + one)

    def _look(self, end: int) -> Decision:
        """Every scale at the newest value."""
        best: tuple[float, int, Contrast] | None = None
        for k, n in enumerate(self.scales):
            if end < n + max(n, self.min_reference) or (self.lenient and n > _LENIENT):
                break
            if end % _stride(n):
                continue
            if self._other_way(end, n):
                self._stays[k] = False
                continue
            found = contrast(
                _window(self._sums, self._x, end, n, self.memory),
                FLOATS,
                self.sign,
                self.lenient,
            )
            above, self._stays[k] = self._judge(found, k, self._base, FLOATS)
            if above and (best is None or abs(found.score) > best[0]):
                best = (abs(found.score), k, found)
        if self.active:
            if any(self._stays):
                return Decision(True, True, since=self.since)
            self.active = False
            return Decision(True, cleared=True, since=self.since)
        return Decision(True) if best is None else self._fire(best[1], best[2], end, self._base)

    def _other_way(self, end: int, n: int) -> bool:
        """Does the window lie on the harmless side of every level it may be held against? Then there is nothing to compute."""
        if not self.sign:
            return False
        total, r = self._sums[0], end - n
        s = max(0, r - self.memory)
        middle = s + (r - s) // 2
        test = self.sign * (total[end] - total[r]) / n
        mean, later = (total[r] - total[s]) / (r - s), (total[r] - total[middle]) / (r - middle)
        return bool(test < min(self.sign * mean, self.sign * later))

    def _judge(self, found: Contrast, k: int, base: float, on: Any) -> tuple[Any, Any]:
        """Does this look break the bound; does it keep an alarm up?"""
        z = deviates(self.arl, self.scales, 2 if self.sign == 0 else 1)[k]
        smallest = on.maximum(self.min_effect, self.min_sd * found.scatter)
        smallest = on.maximum(smallest, self.min_frac * abs(found.level + base))
        side = on.where(found.shift < 0, -1.0, 1.0) if self.sign == 0 else self.sign
        score, shift, half = side * found.score, side * found.shift, bound("clear_frac")
        return (score > z) & (shift > smallest), (score > half * z) & (shift > half * smallest)

    def _edges(
        self,
        places: list[int],
        ends: Any,
        over: Any,
        kept: Any,
        looks: list[tuple[int, Any, Contrast]],
        base: float,
    ) -> list[tuple[int, Decision]]:
        edges: list[tuple[int, Decision]] = []
        for i in np.flatnonzero(over | ~kept).tolist():
            end = int(ends[i])
            if not self.active and over[i]:
                best = (-1.0, 0, looks[0][2])
                for k, ends_of, all_of in looks:
                    place = int(np.searchsorted(ends_of, end))
                    here = place < ends_of.size and ends_of[place] == end
                    one = _at(all_of, place) if here else None
                    if one and self._judge(one, k, base, FLOATS)[0] and abs(one.score) > best[0]:
                        best = (abs(one.score), k, one)
                edges.append((places[end - 1], self._fire(best[1], best[2], end, base)))
            elif self.active and not kept[i]:
                self.active = False
                edges.append((places[end - 1], Decision(True, cleared=True, since=self.since)))
        return edges

    def _fire(self, k: int, found: Contrast, end: int, base: float) -> Decision:
        self.active, self.since = True, self.steps[end - self.scales[k]]
        z = deviates(self.arl, self.scales, 2 if self.sign == 0 else 1)[k]
        edge = max(abs(found.shift) * z / abs(found.score), self.min_effect)
        level = found.level + base
        limit = level + math.copysign(edge, found.shift)
        return Decision(True, True, True, since=self.since, bound=limit, fitted=level + found.shift)


@lru_cache(maxsize=256)
def deviates(arl: float, scales: tuple[int, ...], sides: int) -> tuple[float, ...]:
    """The normal deviate each scale must exceed, for one false alarm in `arl` values."""
    levels = [min(0.05, max(1.0, n / 25.0) / (len(scales) * sides * arl)) for n in scales]
    return tuple(NormalDist().inv_cdf(1.0 - level) for level in levels)


def _drawn(values: Float, reach_of: Callable[[float, float], float]) -> Float:
    """Every value drawn in to the limits that the values before its block of 25 set."""
    out: Float = values.copy()
    starts = np.arange(_EVERY, values.size, _EVERY)
    full = starts[starts >= _LOOK]
    past = [values[:start] for start in starts[starts < _LOOK].tolist()]
    middles = [float(np.median(one)) for one in past]
    widths = [float(np.median(np.abs(one - m))) for one, m in zip(past, middles, strict=True)]
    if full.size:
        blocks = np.lib.stride_tricks.sliding_window_view(values, _LOOK)[full - _LOOK]
        inner = np.median(blocks, axis=1)
        middles += inner.tolist()
        widths += np.median(np.abs(blocks - inner[:, None]), axis=1).tolist()
    for start, middle, width in zip(starts.tolist(), middles, widths, strict=True):
        reach = reach_of(middle, width)
        np.clip(
            values[start : start + _EVERY], middle - reach, middle + reach, out=out[start : start + _EVERY]
        )
    return out


def _stride(n: int) -> int:
    """A window of n values is looked at every n/8 steps, at least every 16."""
    return max(1, min(16, n // 8))


def _cumulated(x: Float) -> Float:
    """(5, T+1): sums of x, x^2, t x, x_t x_(t-1) and x_t x_(t-4) up to each step."""
    rows = np.zeros((5, x.size + 1))
    rows[0, 1:], rows[1, 1:], rows[2, 1:] = x, x * x, np.arange(x.size) * x
    rows[3, 2:], rows[4, 5:] = x[1:] * x[:-1], x[4:] * x[:-4]
    out: Float = np.empty_like(rows)
    np.cumsum(rows, axis=1, out=out)
    return out


def _window(sums: Any, x: Any, end: int, n: int, memory: int) -> Sums:
    """The sums of one look, off lists."""
    r = end - n
    return _gather(sums, x, end, n, r, max(0, r - memory))


def _windows(sums: Float, x: Float, ends: Any, n: int, memory: int) -> Sums:
    """The sums of all looks of one scale, off arrays."""
    r = ends - n
    return _gather(sums, x, ends, n, r, np.maximum(0, r - memory))


def _gather(sums: Any, x: Any, end: Any, n: int, r: Any, s: Any) -> Sums:
    total, half = sums[0], n // 2
    m = r - s
    middle = s + m // 2
    return Sums(
        m=m, n=n, first=s, x=total[r] - total[s], x2=sums[1][r] - sums[1][s], tx=sums[2][r] - sums[2][s],
        lag1=sums[3][r] - sums[3][s + 1], lag4=sums[4][r] - sums[4][s + 4], x_first=x[s], x_last=x[r - 1],
        ends=total[s + 4] - total[s] + total[r] - total[r - 4], early=total[end - half] - total[r],
        late=total[end] - total[end - half], n_early=n - half,
        x_half=total[r] - total[middle], tx_half=sums[2][r] - sums[2][middle],
    )  # fmt: skip


def _at(found: Contrast, i: int) -> Contrast:
    return Contrast(
        float(found.score[i]), float(found.shift[i]), float(found.scatter[i]), float(found.level[i])
    )
