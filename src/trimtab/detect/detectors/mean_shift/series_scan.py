"""Scan of `MeanShift` over a whole series: the stream's answers.

Full comparisons only where they could matter.

A test can break its bound only if the shift is large even for independent values, where the scatter of both
means is smallest. That check needs three of the running sums. What passes it, a few tests in a calm series,
is compared as the stream does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Transitions
from trimtab.detect.detectors.mean_shift.statistic import ARRAYS, MeanDifference, mean_difference
from trimtab.detect.detectors.mean_shift.window_schedule import (
    LENIENT,
    cumulated,
    first_test,
    gather,
    stride,
    z_scores,
)
from trimtab.stats.array_kernels import row_medians
from trimtab.typing import Bool, Float64, Int64

if TYPE_CHECKING:
    from trimtab.detect.detectors.mean_shift.detector import MeanShift


NEWEST = 5
"""Values whose median may leave a flat past at once."""

_ROUNDING = 1e-9  # what the first test gives away, so that rounding loses no look
_CHUNK = 128  # looks at first for the end of an alarm; doubled while it goes on


def winsorized(detector: MeanShift, values: Float64, every: int, past: int) -> Float64:
    """Return the values clipped to the limits of the up to `past` values before each block of `every`."""
    starts = np.arange(every, values.size, every)
    if not starts.size:
        return np.array(values)
    early = [values[:start] for start in starts[starts < past].tolist()]
    full = starts[starts >= past]
    parts = [_deviations(past[None, :]) for past in early]
    if full.size:
        parts.append(_deviations(np.lib.stride_tricks.sliding_window_view(values, past)[full - past]))
    middle, spread, mean = (np.concatenate([part[i] for part in parts]) for i in range(3))
    reach = detector.clip_limit(middle, spread, mean, ARRAYS)
    block = np.arange(every, values.size) // every - 1
    low, high, later = (middle - reach)[block], (middle + reach)[block], values[every:]
    flat = np.flatnonzero((spread == 0.0)[block])
    if flat.size:
        newest = row_medians(
            np.lib.stride_tricks.sliding_window_view(values, NEWEST)[flat + every - NEWEST + 1]
        )
        low[flat], high[flat] = np.minimum(low[flat], newest), np.maximum(high[flat], newest)
    out: Float64 = values.copy()
    out[every:] = np.minimum(np.maximum(later, low), high)
    if detector.is_late:
        out[:every] = np.minimum(np.maximum(values[:every], middle[0] - reach[0]), middle[0] + reach[0])
    return out


def _deviations(rows: Float64) -> tuple[Float64, Float64, Float64]:
    """Median of each row; median and mean of the absolute deviations from it."""
    middle = row_medians(rows)
    away = np.abs(rows - middle[:, None])
    return middle, row_medians(away), away.mean(axis=1)


def transitions_of(detector: MeanShift, steps: Int64, clipped: Float64) -> Transitions:
    """Return where alarms start and end: (index, decision). `clipped`: the values, winsorized."""
    return _Scan(detector, steps, clipped).transitions()


class _Scan:
    def __init__(self, detector: MeanShift, steps: Int64, clipped: Float64) -> None:
        self.of, self.steps, self.base = detector, steps, float(clipped[0])
        self.x = clipped - self.base
        self.sums = cumulated(self.x)
        scales = [n for n in detector.scales if not (detector.lenient and n > LENIENT)]
        self.scales = np.array(scales, np.int64)
        self.firsts = [first_test(n, detector.min_reference) for n in scales]
        self.z = np.array(z_scores(detector.arl, detector.scales, 2 if detector.sign == 0 else 1))

    def transitions(self) -> Transitions:
        size, strongest = self.x.size, self._over()
        ends = np.array(sorted(strongest), np.int64)
        transitions: Transitions = []
        end = 0
        while True:
            index = int(np.searchsorted(ends, end))
            if index == ends.size:
                return transitions
            end = int(ends[index])
            k, one = strongest[end]
            since = int(self.steps[end - self.of.scales[k]])
            transitions.append((end - 1, self.of.fire(k, one, since, self.base)))
            end = self._cleared(end + 1)
            if end > size:
                return transitions
            self.of.active = False
            transitions.append((end - 1, Decision(True, cleared=True, since=since)))
            end += 1

    def _over(self) -> dict[int, tuple[int, MeanDifference]]:
        """End of the window -> the scale that breaks its bound there (the strongest), and its comparison."""
        best: dict[int, tuple[int, MeanDifference]] = {}
        due, k = self._possible([self._due(k, 0, self.x.size) for k in range(self.scales.size)], 1.0)
        if not due.size:
            return best
        differences = self._compare(due, k)
        above, _ = self.of.judge(differences, self.z[k], self.base, ARRAYS)
        for i in np.flatnonzero(above).tolist():
            one = MeanDifference(
                *(
                    float(part[i])
                    for part in (differences.score, differences.shift, differences.scatter, differences.level)
                )
            )
            end = int(due[i])
            if end not in best or abs(one.score) > abs(best[end][1].score):
                best[end] = int(k[i]), one
        return best

    def _cleared(self, start: int) -> int:
        """Return the first end, from `start` on, at which no scale keeps the alarm up.

        Past the series if none.
        """
        size, length = self.x.size, _CHUNK
        while start <= size:
            ends = np.arange(start, min(start + length, size + 1))
            stays_up = self._stays_up(ends)
            if not stays_up.all():
                return int(ends[np.argmin(stays_up)])
            start, length = start + length, 2 * length
        return size + 1

    def _stays_up(self, ends: Int64) -> Bool:
        """Return at which ends the latest test of some scale keeps an alarm up."""
        dues = [self._due(k, int(ends[0]), int(ends[-1])) for k in range(self.scales.size)]
        stays_up = np.zeros(ends.size, bool)
        due, k = self._possible(dues, bound("clear_frac"))
        if not due.size:
            return stays_up
        stays = self.of.judge(self._compare(due, k), self.z[k], self.base, ARRAYS)[1]
        for end, n in zip(due[stays].tolist(), self.scales[k[stays]].tolist(), strict=True):
            at = max(0, end - int(ends[0]))
            stays_up[at : end - int(ends[0]) + stride(n)] = True
        return stays_up

    def _due(self, k: int, start: int, stop: int) -> Int64:
        """Return the ends of the tests of scale k up to `stop`, from the latest at `start` on."""
        step = stride(int(self.scales[k]))
        start = max(start - start % step, self.firsts[k] + -self.firsts[k] % step)
        return np.arange(start, stop + 1, step)

    def _compare(self, due: Int64, k: Int64) -> MeanDifference:
        of, n = self.of, self.scales[k]
        begins = np.maximum(0, due - n - of.memory)
        return mean_difference(gather(self.sums, self.x, due, n, begins), ARRAYS, of.sign, of.lenient)

    def _possible(self, dues: list[Int64], frac: float) -> tuple[Int64, Int64]:
        """Return the tests that may break `frac` of their bound, all that do among them, and their scales."""
        shifted = [self._shifted(due, k, frac) for k, due in enumerate(dues)]
        due, shift, mean = (np.concatenate([one[i] for one in shifted]) for i in range(3))
        k = np.repeat(np.arange(len(shifted)), [one[0].size for one in shifted])
        n = self.scales[k]
        r = due - n
        s = np.maximum(0, r - self.of.memory)
        m = r - s
        of_x = mean * m
        sxx = (m * m - 1.0) * m / 12.0
        slope = (self.sums[2][r] - self.sums[2][s] - (s + 0.5 * (m - 1)) * of_x) / sxx
        squares = self.sums[1][r] - self.sums[1][s]
        residual = squares - of_x * mean - slope * slope * sxx
        variance = np.maximum(residual - _ROUNDING * squares, 0.0) / (m - 2.0) * (1.0 - 1e-6)
        min_square = np.maximum(self.z[k] ** 2 * (1.0 / n + 1.0 / m), self.of.min_sd**2) * variance
        possible = shift * shift >= frac * frac * min_square
        return due[possible], k[possible]

    def _shifted(self, due: Int64, k: int, frac: float) -> tuple[Int64, Float64, Float64]:
        """Return the tests whose window lies on the watched side.

        Ends, largest shift, mean of the reference.
        """
        of, n, total = self.of, int(self.scales[k]), self.sums[0]
        r = due - n
        s = np.maximum(0, r - of.memory)
        m, before = r - s, total[r]
        mean, test = (before - total[s]) / m, (total[due] - before) / n
        if of.sign:
            half = s + m // 2
            level = np.minimum(of.sign * mean, of.sign * ((before - total[half]) / (r - half)))
            shift: Any = of.sign * test - level
        else:
            shift = np.abs(test - mean)
        shift = shift + _ROUNDING * (np.abs(test) + np.abs(mean))
        possible = np.flatnonzero((shift > 0) & (shift >= frac * of.min_effect))
        return due[possible], shift[possible], mean[possible]
