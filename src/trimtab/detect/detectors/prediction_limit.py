"""Growth over a run's own baseline, with a stated false-alarm budget.

The first `baseline` values give a mean and a scale. The scale comes from successive differences (von Neumann
1941), which a slow trend does not inflate, with two thirds of the degrees of freedom. A later value is over
the bound when it exceeds the smallest effect and the one-sided Student-t prediction limit at level 1/arl.
(The level is the catalog's `arl_measured` where every value brings its measurement error, which bounds the
scale from below.) `confirm` values in a row fire.

Growth already under way would hide in the baseline's scatter, so the finished baseline is tested once for a
trend: a line's slope at the same level, with the same smallest effect from start to end. A stationary run
with independent values fires at most once in `arl` values on average. `confirm` earns no credit in the
derivation: it is the margin for autocorrelation and heavy tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions
from trimtab.stats.student_t import t_quantile
from trimtab.typing import Float64, Int64


@dataclass
class PredictionLimit(Scanner):
    """Prediction-limit detector.

    Fires when values leave their baseline upwards (`sign` +1) or downwards (-1) by `min_effect`.

    `min_effect` is in the unit of the values (log units for a log-transformed reading).

    >>> d = PredictionLimit(arl=1000.0, baseline=4, confirm=2, min_effect=0.1)
    >>> [d.update(i, x).fired for i, x in enumerate([0.0, 0.01, -0.01, 0.0, 0.0, 1.0, 1.0])]
    [False, False, False, False, False, False, True]
    """

    takes_errors: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = (
        "values",
        "errors",
        "num_skipped",
        "first",
        "start",
        "rising",
        "hysteresis",
    )
    arl: float = field(default_factory=lambda: bound("arl"))
    baseline: int = field(default_factory=lambda: int(bound("baseline")))
    confirm: int = field(default_factory=lambda: int(bound("confirm")))
    min_effect: float = 0.0
    sign: int = 1
    values: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    num_skipped: int = 0
    first: int = -1
    start: float = math.nan
    rising: bool = False
    hysteresis: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        self.hysteresis = Hysteresis(self.confirm)
        dof = max(1, 2 * (self.baseline - 1) // 3)
        measured = min(self.arl, bound("arl_measured"))
        self._t, self._t_measured = t_quantile(1.0 / self.arl, dof), t_quantile(1.0 / measured, dof)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; `se`, its measurement error.

        Widens the bound where it exceeds the baseline's scatter.
        """
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(
                len(self.values) >= self.baseline, self.hysteresis.active, since=self.hysteresis.since
            )
        if len(self.values) < self.baseline:
            self.values.append(value)
            self.errors.append(se)
            self.first = step if len(self.values) == 1 else self.first
            if len(self.values) == self.baseline and self._measured:
                self.hysteresis.confirm = min(self.confirm, int(bound("confirm")))
            return self._trend() if len(self.values) == self.baseline else Decision(False)
        mean = math.fsum(self.values) / self.baseline
        excess = self.excess(se)
        if self.rising:  # the level to return to is where the trend began
            mean, excess = self.start, self.min_effect or self.excess(se)
        distance = self.sign * (value - mean)
        back = distance < bound("clear_frac") * excess
        decision = self.hysteresis.update(step, distance > excess, back, mean + self.sign * excess)
        self.rising = self.rising and decision.active
        return decision

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """`update` for a whole series at once."""
        indices = self.finite(values)
        transitions: Transitions = []
        for i in indices[: self.baseline].tolist():
            decision = self.update(int(steps[i]), float(values[i]))
            if decision.fired:
                transitions.append((i, decision))
        done = self.baseline
        if self.rising and indices.size > done:  # until it is back where the trend began
            rest = indices[done:]
            crossings = self._hold(steps[rest], values[rest], self.start, self.min_effect or self.excess(), 1)
            transitions += [(int(rest[i]), decision) for i, decision in crossings]
            self.rising = not crossings
            done += crossings[0][0] + 1 if crossings else rest.size
        if indices.size > done:
            rest = indices[done:]
            mean = math.fsum(self.values) / self.baseline
            crossings = self._hold(steps[rest], values[rest], mean, self.excess())
            transitions += [(int(rest[i]), decision) for i, decision in crossings]
        return transitions

    def _hold(self, steps: Int64, values: Float64, mean: float, excess: float, num: int = -1) -> Transitions:
        """Values against one level; `num` edges at most where given."""
        distance = self.sign * (values - mean)
        bounds = np.full(values.size, mean + self.sign * excess)
        return self.hysteresis.scan(
            steps, distance > excess, distance < bound("clear_frac") * excess, bounds, num
        )

    @property
    def now(self) -> Decision:
        """Ready once the baseline is complete."""
        return Decision(
            len(self.values) >= self.baseline, self.hysteresis.active, since=self.hysteresis.since
        )

    def _trend(self) -> Decision:
        """Is the baseline itself growing? Least squares, one-sided t test of the slope."""
        m = self.baseline
        middle, mean = (m - 1) / 2.0, math.fsum(self.values) / m
        sxx = math.fsum((i - middle) ** 2 for i in range(m))
        slope = math.fsum((i - middle) * (v - mean) for i, v in enumerate(self.values)) / sxx
        grown = self.sign * slope * (m - 1)
        limit = max(self.min_effect, self._quantile() * self._scale() / math.sqrt(sxx) * (m - 1))
        self.start = mean - slope * middle
        end = self.start + self.sign * limit
        if grown <= limit or grown <= 0:
            return Decision(True, bound=end)
        self.rising = self.hysteresis.active = True
        self.hysteresis.since = self.first
        fitted = mean + slope * (m - 1 - middle)
        return Decision(True, True, True, since=self.first, bound=end, fitted=fitted)

    def _scale(self, se: float = math.nan) -> float:
        """Scatter of one value: from successive differences, at least the median measurement error."""
        steps = [b - a for a, b in zip(self.values, self.values[1:], strict=False)]
        variance = math.fsum(d * d for d in steps) / (2 * len(steps))
        known = sorted(e for e in (*self.errors, se) if math.isfinite(e))
        return max(math.sqrt(variance), known[len(known) // 2] if known else 0.0)

    def excess(self, se: float = math.nan) -> float:
        """How far a value may lie from the baseline's mean."""
        scale = self._scale(se)
        return max(self.min_effect, self._quantile() * scale * math.sqrt(1.0 + 1.0 / self.baseline))

    def _quantile(self) -> float:
        """Return Student's quantile, of the smaller budget where all values have measurement errors."""
        return self._t_measured if self._measured else self._t

    @property
    def _measured(self) -> bool:
        return all(math.isfinite(error) for error in self.errors)
