"""Recent past of a series: whether it moved, when an alarm might be explained by it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.mean_shift.statistic import FLOATS, Sums, mean_difference

_KEEP = 1_000
_LONGEST, _BEFORE, _BLOCK = 64, 64, 10
_RECENT = int(bound("suppression_recent"))


@dataclass
class History:
    """Steps and values of one series, in order; the latest thousand at least when it grows by `add`."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float) -> None:
        """Append one value; one that is not finite is left out."""
        if math.isfinite(value):
            self.steps.append(step)
            self.values.append(value)
            if len(self.steps) > 2 * _KEEP:
                del self.steps[:_KEEP], self.values[:_KEEP]

    def fill(self, steps: Any, values: Any) -> None:
        """Add a whole series at once and keep all of it, so that any of its steps can be compared."""
        finite = np.isfinite(values)
        self.steps, self.values = array("q", steps[finite].tolist()), array("d", values[finite].tolist())

    def moved(self, since: int, now: int, recent: int = _RECENT) -> float:
        """Return how far the values of steps since..now lie from the 64 before, as a signed z-score.

        At least the last `recent` values count; of a sparse series three, and those of four times that span.
        nan without enough of them.
        """
        end = bisect_right(self.steps, now)
        start = min(bisect_left(self.steps, since), max(0, end - recent))
        start = max(start, end - _LONGEST)
        span = max(
            _RECENT, 4 * (now - since + 1)
        )  # values older than that say nothing of now: evaluations are rare
        start = max(start, min(bisect_left(self.steps, now - span + 1), end - 3))
        if start < 8 and end >= 12:  # a short or sparse series: halve what there is
            start = max(8, end // 2)
        return moved(self.values[max(0, start - _BEFORE) : start], self.values[start:end])

    def settled(self, now: int) -> bool:
        """Has it risen over the last thousand values, and does it stand within a twentieth of its best?"""
        end = bisect_right(self.steps, now)
        values = self.values[max(0, end - _KEEP) : end]
        if len(values) < 3 * _BLOCK:
            return False
        means = [
            math.fsum(values[i : i + _BLOCK]) / _BLOCK for i in range(0, len(values) - _BLOCK + 1, _BLOCK)
        ]
        recent = math.fsum(values[-_BLOCK:]) / _BLOCK
        near, rise = bound("settled_near"), bound("settled_rise")
        return recent > 0 and recent >= near * max(means) and recent >= rise * means[0]


def moved(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the mean of `after` against `before`, as a z-score robust to autocorrelation.

    Nan for too few values.

    >>> moved([0.0, 1.0] * 32, [5.0, 6.0, 5.0, 6.0]) > 4
    True
    """
    m, n = len(before), len(after)
    if m < 8 or n < 2:
        return math.nan
    base = before[0]
    b = [x - base for x in before]
    a = [x - base for x in after]
    half = n // 2
    sums = Sums(
        m=m, n=n, first=0, x=math.fsum(b), x2=math.fsum(x * x for x in b),
        tx=math.fsum(i * x for i, x in enumerate(b)),
        lag1=math.fsum(b[i] * b[i - 1] for i in range(1, m)),
        lag4=math.fsum(b[i] * b[i - 4] for i in range(4, m)),
        x_first=b[0], x_last=b[-1], ends=math.fsum(b[:4]) + math.fsum(b[-4:]),
        x_half=0.0, tx_half=0.0, early=math.fsum(a[: n - half]), late=math.fsum(a[n - half :]),
        n_early=n - half,
    )  # fmt: skip
    return float(mean_difference(sums, FLOATS).score)
