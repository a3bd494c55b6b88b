"""Mann-Kendall trend test on a sliding window, with Theil-Sen's slope, corrected for autocorrelation.

The window is pre-whitened with its own lag-1 correlation after the Theil-Sen line is taken out, and the line
is put back (trend-free pre-whitening, Yue et al. 2002). The test is made every quarter of a window, or every
`stride` values, each at level stride / arl.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Carried, Decision
from trimtab.typing import Float64


def theil_sen(values: Float64) -> float:
    """Median slope of all pairs, a step (Sen 1968).

    >>> theil_sen(np.array([0.0, 1.0, 2.0, 30.0, 4.0]))
    1.0
    """
    i, j = np.triu_indices(values.size, k=1)
    return float(np.median((values[j] - values[i]) / (j - i)))


def mann_kendall(values: Float64) -> float:
    """Return the z-score of Mann-Kendall's S with tie and continuity corrections.

    0 for fewer than four values.

    >>> round(mann_kendall(np.arange(10.0)), 2)
    3.94
    """
    n = values.size
    if n < 4:
        return 0.0
    i, j = np.triu_indices(n, k=1)
    s = float(np.sign(values[j] - values[i]).sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18.0
    return 0.0 if variance <= 0 or s == 0 else (s - math.copysign(1.0, s)) / math.sqrt(variance)


def whitened(values: Float64) -> Float64:
    """The series with the lag-1 correlation of its detrended values taken out and its trend kept."""
    t = np.arange(values.size, dtype=np.float64)
    slope = theil_sen(values)
    rest = values - slope * t
    rest = rest - rest.mean()
    total = float((rest * rest).sum())
    if total <= 0:
        return values
    n = values.size
    raw = float((rest[1:] * rest[:-1]).sum()) / total
    phi = min(max(raw + (1.0 + 4.0 * raw) / n + math.sqrt(max(0.0, 1.0 - raw * raw) / n), 0.0), 0.95)
    return np.asarray((rest[1:] - phi * rest[:-1]) / (1.0 - phi) + slope * t[1:])


@dataclass
class MannKendall(Carried):
    """Trend detector.

    Fires when the last `window` values rise (`sign` +1), fall (-1) or either (0) by `min_effect` at least.

    >>> d = MannKendall(arl=1000.0, window=24, sign=-1)
    >>> [d.update(t, -0.1 * t + (t % 3)).fired for t in range(60)].index(True) < 60
    True
    """

    carried: ClassVar[tuple[str, ...]] = (
        "num_skipped", "values", "steps", "count", "active", "since",
    )  # fmt: skip
    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    window: int = 60
    min_effect: float = 0.0
    stride: int = 0
    num_skipped: int = 0
    values: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    count: int = 0
    active: bool = False
    since: int = -1

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.window, self.active, since=self.since)
        self.values, self.steps = [*self.values, value][-self.window :], [*self.steps, step][-self.window :]
        self.count += 1
        stride = self.stride or max(1, self.window // 4)
        if len(self.values) < self.window:
            return Decision(False)
        if self.count % stride:
            return Decision(True, self.active, since=self.since)
        x = np.array(self.values)
        change = theil_sen(x) * (self.window - 1)
        z_score = mann_kendall(whitened(x))
        z = NormalDist().inv_cdf(1.0 - min(0.25, stride / self.arl / (1 if self.sign else 2)))
        side = self.sign or (1 if change > 0 else -1)
        over = side * z_score > z and side * change > self.min_effect
        if over and not self.active:
            self.active, self.since = True, self.steps[0]
            limit = float(np.median(x[: max(1, self.window // 8)]))
            return Decision(True, True, True, since=self.since, bound=limit, fitted=limit + change)
        if self.active and side * z_score < bound("clear_frac") * z:
            self.active = False
            return Decision(True, cleared=True, since=self.since)
        return Decision(True, self.active, since=self.since)
