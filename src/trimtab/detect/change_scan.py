"""`Change` on a whole series: the stream's answers, the whole comparison made only where it could matter.

A look can break its bound only if the shift is large even for independent values, where the scatter of both means is least.
That test needs three of the running sums; what passes it, a few looks in a calm series, is compared as the stream does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.detect.contrast import ARRAYS, Contrast, contrast
from trimtab.detect.detector import Decision, Edges
from trimtab.detect.looks import LENIENT, cumulated, deviates, first_look, gather, stride
from trimtab.detect.medians import row_medians

if TYPE_CHECKING:
    from trimtab.detect.change import Change

__all__ = ["drawn_in", "edges_of"]

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_ROUNDING = 1e-9  # what the first test gives away, so that rounding loses no look
_CHUNK = 128  # looks at first for the end of an alarm; doubled while it goes on


def drawn_in(detector: Change, values: Float, every: int, look: int) -> Float:
    """Every value drawn in to the limits that the up to `look` values before its block of `every` set."""
    starts = np.arange(every, values.size, every)
    if not starts.size:
        return np.array(values)
    early = [values[:start] for start in starts[starts < look].tolist()]
    full = starts[starts >= look]
    middles = [row_medians(past[None, :]) for past in early]
    spreads = [row_medians(np.abs(past - m)[None, :]) for past, m in zip(early, middles, strict=True)]
    if full.size:
        blocks = np.lib.stride_tricks.sliding_window_view(values, look)[full - look]
        middles.append(row_medians(blocks))
        spreads.append(row_medians(np.abs(blocks - middles[-1][:, None])))
    middle, spread = np.concatenate(middles), np.concatenate(spreads)
    reach = detector.reach(middle, spread, ARRAYS)
    block = np.arange(every, values.size) // every - 1
    out: Float = values.copy()
    out[every:] = np.minimum(np.maximum(values[every:], (middle - reach)[block]), (middle + reach)[block])
    return out


def edges_of(detector: Change, steps: Int, drawn: Float) -> Edges:
    """Where alarms start and end: (index among these values, decision). `drawn`: the values, drawn in."""
    return _Scan(detector, steps, drawn).edges()


class _Scan:
    def __init__(self, detector: Change, steps: Int, drawn: Float) -> None:
        self.of, self.steps, self.base = detector, steps, float(drawn[0])
        self.x = drawn - self.base
        self.sums = cumulated(self.x)
        self.scales = [
            (k, n, first_look(n, detector.min_reference))
            for k, n in enumerate(detector.scales)
            if not (detector.lenient and n > LENIENT)
        ]
        self.z = deviates(detector.arl, detector.scales, 2 if detector.sign == 0 else 1)

    def edges(self) -> Edges:
        size, found = self.x.size, self._over()
        ends = np.array(sorted(found), np.int64)
        edges: Edges = []
        end = 0
        while True:
            place = int(np.searchsorted(ends, end))
            if place == ends.size:
                return edges
            end = int(ends[place])
            k, one = found[end]
            since = int(self.steps[end - self.of.scales[k]])
            edges.append((end - 1, self.of.fire(k, one, since, self.base)))
            end = self._cleared(end + 1)
            if end > size:
                return edges
            self.of.active = False
            edges.append((end - 1, Decision(True, cleared=True, since=since)))
            end += 1

    def _over(self) -> dict[int, tuple[int, Contrast]]:
        """End of the window -> the scale that breaks its bound there (the strongest), and its comparison."""
        best: dict[int, tuple[int, Contrast]] = {}
        for k, n, first in self.scales:
            step = stride(n)
            due = np.arange(first + -first % step, self.x.size + 1, step)
            due = due[self._possible(due, k, n, 1.0)]
            if not due.size:
                continue
            found = self._compare(due, n)
            above, _ = self.of.judge(found, k, self.base, ARRAYS)
            for i in np.flatnonzero(above).tolist():
                one = Contrast(
                    *(float(part[i]) for part in (found.score, found.shift, found.scatter, found.level))
                )
                end = int(due[i])
                if end not in best or abs(one.score) > abs(best[end][1].score):
                    best[end] = k, one
        return best

    def _cleared(self, start: int) -> int:
        """The first end, from `start` on, at which no scale keeps the alarm up; past the series when there is none."""
        size, length = self.x.size, _CHUNK
        while start <= size:
            ends = np.arange(start, min(start + length, size + 1))
            kept = np.zeros(ends.size, bool)
            for k, n, first in self.scales:
                kept |= self._stays(ends, k, n, first)
            if not kept.all():
                return int(ends[np.argmin(kept)])
            start, length = start + length, 2 * length
        return size + 1

    def _stays(self, ends: Int, k: int, n: int, first: int) -> Bool:
        """Does the latest look of this scale keep an alarm up?"""
        step = stride(n)
        due = np.arange(ends[0] - ends[0] % step, ends[-1] + 1, step)
        stays = np.zeros(due.size, bool)
        maybe = np.flatnonzero(due >= first)
        maybe = maybe[self._possible(due[maybe], k, n, bound("clear_frac"))]
        if maybe.size:
            stays[maybe] = self.of.judge(self._compare(due[maybe], n), k, self.base, ARRAYS)[1]
        return np.asarray(stays[ends // step - due[0] // step])

    def _compare(self, due: Int, n: int) -> Contrast:
        of = self.of
        begins = np.maximum(0, due - n - of.memory)
        return contrast(gather(self.sums, self.x, due, n, begins), ARRAYS, of.sign, of.lenient)

    def _possible(self, due: Int, k: int, n: int, frac: float) -> Bool:
        """May a look break `frac` of its bound? Never no where it does."""
        of, total = self.of, self.sums[0]
        r = due - n
        s = np.maximum(0, r - of.memory)
        m = r - s
        of_x = total[r] - total[s]
        mean, test = of_x / m, (total[due] - total[r]) / n
        if of.sign:
            half = s + m // 2
            later = (total[r] - total[half]) / (r - half)
            level = np.minimum(of.sign * mean, of.sign * later)
            shift: Any = of.sign * test - level
        else:
            shift = np.abs(test - mean)
        shift = shift + _ROUNDING * (np.abs(test) + np.abs(mean))
        sxx = (m * m - 1.0) * m / 12.0
        slope = (self.sums[2][r] - self.sums[2][s] - (s + 0.5 * (m - 1)) * of_x) / sxx
        residual = self.sums[1][r] - self.sums[1][s] - of_x * mean - slope * slope * sxx
        variance = np.maximum(residual, 0.0) / (m - 2.0) * (1.0 - 1e-6)
        least = np.maximum(self.z[k] ** 2 * (1.0 / n + 1.0 / m), of.min_sd**2) * variance
        return np.asarray(
            (shift >= frac * of.min_effect) & (shift > 0) & (shift * shift >= frac * frac * least)
        )
