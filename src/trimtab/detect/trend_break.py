"""A break from a series' own recent trend, with the same false-alarm budget as `SustainedGrowth`.

For aggregates that move in every run that learns (reward, KL from the start, entropy): steady movement is the null
hypothesis, so the next value is compared with the line through the last `baseline` values and its prediction limit.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.catalog import bound
from trimtab.detect.detector import Decision, Hysteresis
from trimtab.detect.student import t_quantile

__all__ = ["TrendBreak"]


@dataclass
class TrendBreak:
    """Fires when `confirm` values in a row leave the line's one-step prediction limit upwards (`sign` +1), downwards
    (-1) or either way (0). The limit is at least `min_effect`, and `min_frac` of the size of the line's mean. Values under suspicion do not move the line; after `baseline` active values it starts anew.
    """

    arl: float = field(default_factory=lambda: bound("arl"))
    baseline: int = field(default_factory=lambda: int(bound("baseline")))
    confirm: int = field(default_factory=lambda: int(bound("confirm")))
    min_effect: float = 0.0
    min_frac: float = 0.0
    sign: int = 1
    values: list[float] = field(default_factory=list)
    pending: list[float] = field(default_factory=list)
    num_skipped: int = 0
    edge: Hysteresis = field(init=False)

    def __post_init__(self) -> None:
        self.edge = Hysteresis(self.confirm)
        self._t = t_quantile((1.0 if self.sign else 0.5) / self.arl, self.baseline - 2)
        self._clear = bound("clear_frac")
        self._offsets = [i - (self.baseline - 1) / 2.0 for i in range(self.baseline)]
        self._sxx = math.fsum(x * x for x in self._offsets)

    def update(self, step: int, value: float, se: float = math.nan) -> Decision:
        """Take one value; `se`, its measurement error, bounds the scale from below."""
        if not math.isfinite(value):
            self.num_skipped += 1
            return Decision(len(self.values) >= self.baseline, self.edge.active, since=self.edge.since)
        if len(self.values) < self.baseline:
            self.values.append(value)
            return Decision(False)
        predicted, limit = self._predict(len(self.pending), se)
        distance = value - predicted
        distance = abs(distance) if self.sign == 0 else self.sign * distance
        side = 1.0 if self.sign == 0 and value > predicted else float(self.sign or -1)
        outside = distance > limit
        decision = self.edge.update(step, outside, distance < self._clear * limit, predicted + side * limit)
        if outside or decision.active:
            self.pending.append(value)
        else:
            self.values = [*self.values, *self.pending, value][-self.baseline :]
            self.pending = []
        if len(self.pending) >= self.baseline + self.confirm:  # the new level is the level
            self.values, self.pending, self.edge = (
                self.pending[-self.baseline :],
                [],
                Hysteresis(self.confirm),
            )
        return decision

    def _predict(self, ahead: int, se: float) -> tuple[float, float]:
        """Line through the values, extrapolated `ahead` steps past the next one, and its prediction half-width."""
        m, offsets, sxx = self.baseline, self._offsets, self._sxx
        mean = math.fsum(self.values) / m
        slope = math.fsum([x * (v - mean) for x, v in zip(offsets, self.values, strict=True)]) / sxx
        rest = [v - mean - slope * x for x, v in zip(offsets, self.values, strict=True)]
        residual = math.fsum([r * r for r in rest]) / (m - 2)
        scale = max(math.sqrt(residual), se if math.isfinite(se) else 0.0)
        x = offsets[-1] + 1 + ahead
        half = self._t * scale * math.sqrt(1.0 + 1.0 / m + x * x / sxx)
        return mean + slope * x, max(self.min_effect, self.min_frac * abs(mean), half)

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as JSON types."""
        return {
            "values": list(self.values),
            "pending": list(self.pending),
            "num_skipped": self.num_skipped,
            "edge": asdict(self.edge),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.values, self.pending = list(state["values"]), list(state["pending"])
        self.num_skipped, self.edge = int(state["num_skipped"]), Hysteresis(**state["edge"])
