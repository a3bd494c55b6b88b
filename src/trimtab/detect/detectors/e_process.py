"""An anytime-valid, distribution-free change detector: conformal betting, Shiryaev-Roberts sum.

Each value's p-value is its rank among all values so far. While the series is exchangeable these are
independent and uniform, so any bet on them is fair: e(p) = (1 - p + p ln p) / (p ln^2 p), the mixture of all
power bets (Vovk and Wang 2021, arXiv 1912.06116). R_t = (1 + R_(t-1)) e_t then grows by one a step on
average. Stopping when R >= arl leaves at least `arl` values between false alarms on average, whatever the
tails (Shin, Ramdas and Rinaldo 2022, arXiv 2203.03532). Autocorrelated series are not exchangeable: use
`MeanShift` there.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from typing import ClassVar

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Carried, Decision


def bet(p: float) -> float:
    """The e-value of a p-value in (0, 1]; its mean over a uniform p is 1.

    >>> round(bet(0.01), 2), round(bet(1.0), 2)
    (4.45, 0.5)
    """
    if p >= 1.0 - 1e-6:
        return 0.5
    log = math.log(p)
    return (1.0 - p + p * log) / (p * log * log)


@dataclass
class EProcess(Carried):
    """Fires when values grow larger (`sign` +1) or smaller (-1) than exchangeability allows.

    Clears with a new start.

    >>> d = EProcess(arl=1000.0)
    >>> fired = [d.update(t, float(t % 7) + (9.0 if t >= 60 else 0.0)).fired for t in range(90)]
    >>> fired.index(True) >= 60
    True
    """

    carried: ClassVar[tuple[str, ...]] = (
        "num_skipped", "past", "total", "since", "active",
    )  # fmt: skip
    arl: float = field(default_factory=lambda: bound("arl"))
    sign: int = 1
    warmup: int = 20
    memory: int = 1_000
    num_skipped: int = 0
    past: list[float] = field(default_factory=list)
    total: float = 0.0
    since: int = -1
    active: int = 0  # values since the alarm; 0 when calm

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        del se
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.past) >= self.warmup, bool(self.active), since=self.since)
        x = self.sign * value
        n = len(self.past)
        above, ties = n - bisect_right(self.past, x), bisect_right(self.past, x) - bisect_left(self.past, x)
        p = (above + ties + 1.0) / (n + 1.0)  # ties count against an alarm
        if n < self.memory:
            insort(self.past, x)
        if n < self.warmup:
            return Decision(False)
        if self.active:
            self.active += 1
            if self.active > self.warmup:  # what it has become is what it is: start anew
                self.past, self.total, self.active = [], 0.0, 0
                return Decision(False, cleared=True, since=self.since)
            return Decision(True, True, since=self.since)
        before, self.total = self.total, (1.0 + self.total) * bet(p)
        self.since = step if before < 1.0 else self.since
        if self.total >= self.arl:
            self.active = 1
            return Decision(True, True, True, since=self.since)
        return Decision(True)
