"""A bound that is known beforehand, crossed for several values in a row."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions
from trimtab.typing import Float64, Int64


@dataclass
class Threshold(Scanner):
    """Threshold detector.

    Fires when `confirm` values in a row lie beyond `limit` (`sign` +1 above, -1 below); clears likewise.

    A value with a standard error must lie beyond the limit by the normal quantile of level 1/`arl`: a run
    whose true value sits at the limit then alarms at most once in `arl` values. An infinite `arl` means that
    the reading is itself the answer of a test, and the value alone is compared. `back` is the level to return
    to; without it the limit itself. It can fire from the first values on, but its silence means something
    only after `warmup` of them.

    >>> d = Threshold(limit=0.3, confirm=2)
    >>> [d.update(t, x).fired for t, x in enumerate([0.1, 0.4, 0.4, 0.4])]
    [False, False, True, False]
    """

    takes_errors: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("num_skipped", "count", "hysteresis")
    limit: float
    sign: int = 1
    confirm: int = field(default_factory=lambda: int(bound("confirm")))
    arl: float = field(default_factory=lambda: bound("arl"))
    back: float = math.nan
    warmup: int = field(default_factory=lambda: int(bound("baseline")))
    num_skipped: int = 0
    count: int = 0
    hysteresis: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        self.hysteresis = Hysteresis(self.confirm)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; one that is not finite is counted and skipped."""
        if not math.isfinite(value):
            self.num_skipped += 1
            return self.now
        self.count += 1
        tested = math.isfinite(se) and math.isfinite(self.arl)
        margin = NormalDist().inv_cdf(1.0 - 1.0 / self.arl) * se if tested else 0.0
        limit = self.limit + self.sign * margin
        back = self.limit if math.isnan(self.back) else self.back
        decision = self.hysteresis.update(
            step, self.sign * (value - limit) > 0, self.sign * (value - back) <= 0, limit
        )
        return (
            decision
            if self.count >= self.warmup or decision.fired or decision.cleared
            else replace(decision, ready=False)
        )

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once."""
        indices = self.finite(values)
        x = values[indices]
        self.count = x.size
        back = self.limit if math.isnan(self.back) else self.back
        above, under = self.sign * (x - self.limit) > 0, self.sign * (x - back) <= 0
        transitions = self.hysteresis.scan(steps[indices], above, under, np.full(x.size, self.limit))
        return [(int(indices[i]), decision) for i, decision in transitions]

    @property
    def now(self) -> Decision:
        """Ready after `warmup` values, or when it has fired."""
        return Decision(
            self.count >= self.warmup or self.hysteresis.active,
            self.hysteresis.active,
            since=self.hysteresis.since,
        )
