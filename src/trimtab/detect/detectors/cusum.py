"""Page's cumulative sum (Page 1954), against a baseline (CUSUM) or the running mean (Page-Hinkley).

Both work on one-step prediction errors of an AR(1) fit to the baseline, so autocorrelation does not pass for
a change. The threshold for a wanted run length is Siegmund's (1985): ARL = (exp(2 k b) - 2 k b - 1) / (2
k^2), b = h + 1.166. It holds for independent normal errors. Errors are clipped to four deviations;
`num_clipped` counts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Carried, Decision

_LIMIT = 4.0  # deviations


def siegmund(arl: float, k: float) -> float:
    """The threshold h, in deviations, at which a one-sided CUSUM of drift k alarms once in `arl` values.

    >>> round(siegmund(930.0, 0.5), 1)  # the textbook pair k = 1/2, h = 5
    5.0
    """
    low, high = 0.0, 1.0
    while _run_length(high, k) < arl:
        high *= 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _run_length(middle, k) < arl else (low, middle)
    return high


def _run_length(h: float, k: float) -> float:
    b = 2.0 * k * (h + 1.166)
    return math.inf if b > 700 else (math.exp(b) - b - 1.0) / (2.0 * k * k)


@dataclass
class Cusum(Carried):
    """Cumulative-sum detector.

    Fires when the sum of errors above (`sign` +1) or below (-1) the baseline exceeds the budget's threshold.

    `shift` is the change to detect fastest, in standard deviations of the errors; k is half of it. After an
    alarm the sum is reset once it has returned under half the threshold.

    >>> d = Cusum(arl=1000.0, baseline=20)
    >>> fired = [d.update(t, (t % 2) + (3.0 if t >= 30 else 0.0)).fired for t in range(40)]
    >>> fired.index(True)
    31
    """

    carried: ClassVar[tuple[str, ...]] = (
        "num_skipped", "num_clipped", "values", "fit", "last", "total", "since", "active", "count",
    )  # fmt: skip
    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    shift: float = 1.0
    baseline: int = 40
    follow: bool = False
    num_skipped: int = 0
    num_clipped: int = 0
    values: list[float] = field(default_factory=list)
    fit: tuple[float, float, float] = (0.0, 1.0, 0.0)  # mean, error scale, phi
    last: float = math.nan
    total: float = 0.0
    since: int = -1
    active: bool = False
    count: int = 0

    def __post_init__(self) -> None:
        self._h = siegmund(self.arl, 0.5 * self.shift)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.baseline, self.active, since=self.since)
        if len(self.values) < self.baseline:
            self.values.append(value)
            if len(self.values) == self.baseline:
                self.fit, self.last, self.count = _fit(self.values), value, self.baseline
            return Decision(False)
        mean, scale, phi = self.fit
        error = (value - mean - phi * (self.last - mean)) / scale
        self.num_clipped += abs(error) > _LIMIT
        error = self.sign * min(max(error, -_LIMIT), _LIMIT)
        self.last = value
        if self.follow:  # Page-Hinkley: the mean goes on being learned
            self.count += 1
            self.fit = (mean + (value - mean) / self.count, scale, phi)
        before, self.total = self.total, max(0.0, self.total + error - 0.5 * self.shift)
        if self.total > 0 and before == 0 and not self.active:
            self.since = step
        limit = mean + self.sign * self._h * scale
        if not self.active and self.total > self._h:
            self.active = True
            return Decision(True, True, True, since=self.since, bound=limit)
        if self.active and self.total < 0.5 * self._h:
            self.active, self.total = False, 0.0
            return Decision(True, cleared=True, since=self.since, bound=limit)
        self.total = min(self.total, 2.0 * self._h)  # so that a long alarm can clear
        return Decision(True, self.active, since=self.since if self.active else -1, bound=limit)


@dataclass
class PageHinkley(Cusum):
    """The same sum against the running mean: slow drifts are forgiven, jumps are not."""

    follow: bool = True


def _fit(values: list[float]) -> tuple[float, float, float]:
    """Return mean, scale of one-step errors, and phi (0 to 0.95) with Kendall's correction."""
    n = len(values)
    mean = math.fsum(values) / n
    u = [v - mean for v in values]
    variance = math.fsum(x * x for x in u) / (n - 1)
    if variance <= 0:
        return mean, 1e-12, 0.0
    raw = math.fsum(a * b for a, b in pairwise(u)) / (variance * (n - 1))
    phi = min(max(raw + (1.0 + 3.0 * raw) / n, 0.0), 0.95)
    errors = [b - phi * a for a, b in pairwise(u)]
    scale = math.sqrt(math.fsum(e * e for e in errors) / (n - 2))
    return mean, scale * (1.0 + 1.0 / math.sqrt(2.0 * n)), phi  # one standard error of a scale on top
