"""Trend-break detector: a series leaves its own recent trend, with the same budget as `PredictionLimit`.

It is for aggregates that move in every run that learns (reward, KL from the start, entropy). Steady movement
is the null hypothesis: the next value is compared with the prediction limit of the line through the last
`baseline` values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision, Hysteresis, Scanner, Transitions
from trimtab.stats.student_t import t_quantile
from trimtab.typing import Float64, Int64


@dataclass
class TrendBreak(Scanner):
    """Trend-break detector. Fires when `confirm` values in a row leave the line's one-step prediction limit.

    `sign` +1 watches upwards, -1 downwards, 0 both. The limit is at least `min_effect`, and `min_frac` of the
    size of the line's mean. Suspect values do not move the line; after `baseline` active values it starts
    anew.
    """

    takes_errors: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("values", "pending", "num_skipped", "count", "hysteresis")
    arl: float = field(default_factory=lambda: bound("arl"))
    baseline: int = field(default_factory=lambda: int(bound("baseline")))
    confirm: int = field(default_factory=lambda: int(bound("confirm")))
    min_effect: float = 0.0
    min_frac: float = 0.0
    sign: int = 1
    values: list[float] = field(default_factory=list)
    pending: list[float] = field(default_factory=list)
    num_skipped: int = 0
    count: int = 0
    hysteresis: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        self.hysteresis = Hysteresis(self.confirm)
        self._t = t_quantile((1.0 if self.sign else 0.5) / self.arl, self.baseline - 2)
        self._clear = bound("clear_frac")
        self._offsets = [i - (self.baseline - 1) / 2.0 for i in range(self.baseline)]
        self._sxx = math.fsum(x * x for x in self._offsets)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; `se`, its measurement error, bounds the scale from below."""
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(
                len(self.values) >= self.baseline, self.hysteresis.active, since=self.hysteresis.since
            )
        self.count += 1
        if len(self.values) < self.baseline:
            self.values.append(value)
            return Decision(False)
        predicted, limit = self._predict(len(self.pending), se)
        distance = value - predicted
        distance = abs(distance) if self.sign == 0 else self.sign * distance
        side = 1.0 if self.sign == 0 and value > predicted else float(self.sign or -1)
        outside = distance > limit
        decision = self.hysteresis.update(
            step, outside, distance < self._clear * limit, predicted + side * limit
        )
        if outside or decision.active:
            self.pending.append(value)
        else:
            self.values = [*self.values, *self.pending, value][-self.baseline :]
            self.pending = []
        if len(self.pending) >= self.baseline + self.confirm:  # the new level is the level
            self.values, self.pending, self.hysteresis = (
                self.pending[-self.baseline :],
                [],
                Hysteresis(self.confirm),
            )
        return decision

    def scan(self, steps: Int64, values: Float64) -> Transitions:
        """Run `update` over a whole series: value by value only while the line may be left."""
        indices, m = self.finite(values), self.baseline
        x, at = values[indices], steps[indices].tolist()
        suspects = m + np.flatnonzero(self._suspected(x))
        transitions: Transitions = []
        i = m
        while True:
            index = int(np.searchsorted(suspects, i))
            if index == suspects.size:
                break
            i = int(suspects[index])
            self.values = x[i - m : i].tolist()
            calm = False
            while not calm and i < x.size:
                decision = self.update(at[i], float(x[i]))
                if decision.fired or decision.cleared:
                    transitions.append((int(indices[i]), decision))
                calm = not self.pending and not self.hysteresis.active
                i += 1
        if not self.pending:
            self.values = x[-m:].tolist()
        self.count = x.size
        return transitions

    @property
    def now(self) -> Decision:
        """Ready from the first value that has a line to be held against."""
        return Decision(self.count > self.baseline, self.hysteresis.active, since=self.hysteresis.since)

    def _suspected(self, x: Float64) -> Any:
        """May the value after each full window lie outside? Rounding counts for yes."""
        m = self.baseline
        if x.size <= m:
            return np.zeros(0, bool)
        windows, offsets = np.lib.stride_tricks.sliding_window_view(x[:-1], m), np.array(self._offsets)
        mean = windows.mean(axis=1)
        rest = windows - mean[:, None]
        slope = rest @ offsets / self._sxx
        rest = rest - slope[:, None] * offsets
        ahead = self._offsets[-1] + 1
        half = (
            self._t
            * np.sqrt((rest * rest).sum(axis=1) / (m - 2))
            * math.sqrt(1.0 + 1.0 / m + ahead * ahead / self._sxx)
        )
        limit = np.maximum(np.maximum(half, self.min_effect), self.min_frac * np.abs(mean))
        distance = x[m:] - (mean + slope * ahead)
        distance = np.abs(distance) if self.sign == 0 else self.sign * distance
        slack = 1e-9 * (np.abs(windows).max(axis=1) + np.abs(x[m:]) + limit)
        return ~(distance <= limit - slack)

    def _predict(self, ahead: int, se: float) -> tuple[float, float]:
        """Return the line extrapolated `ahead` steps past the next value, and its prediction half-width."""
        m, offsets, sxx = self.baseline, self._offsets, self._sxx
        mean = math.fsum(self.values) / m
        slope = math.fsum([x * (v - mean) for x, v in zip(offsets, self.values, strict=True)]) / sxx
        rest = [v - mean - slope * x for x, v in zip(offsets, self.values, strict=True)]
        residual = math.fsum([r * r for r in rest]) / (m - 2)
        scale = max(math.sqrt(residual), se if math.isfinite(se) else 0.0)
        x = offsets[-1] + 1 + ahead
        half = self._t * scale * math.sqrt(1.0 + 1.0 / m + x * x / sxx)
        return mean + slope * x, max(self.min_effect, self.min_frac * abs(mean), half)
