"""The six rules of the pilot, as they stood when its bank was recorded: one budget each, so that leads compare like with like.

trimtab's own rules have moved on since (`trimtab.detect.rules.all_rules`); what the pilot found must not move with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trimtab.detect.detectors.base import Detector
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.trend_break import TrendBreak

__all__ = ["PILOT_RULES", "PilotRule"]

ARL = 1_000.0


@dataclass(frozen=True)
class PilotRule:
    """A detector on one reading of one slice."""

    name: str
    key: str
    slice: str
    log: bool
    detector: Callable[[], Detector]

    def value(self, raw: float) -> float:
        """What the detector sees."""
        if not self.log:
            return raw
        return math.log(raw) if raw > 0 else math.nan


_LOG2, _LOG15 = math.log(2.0), math.log(1.5)
PILOT_RULES = (
    PilotRule("post_tool_tail_growth", "tail_ratio/p95", "post_tool", True, lambda: PredictionLimit(arl=ARL, min_effect=_LOG2)),
    PilotRule("lagged_drift_growth", "lagged_drift/p95", "post_tool", True, lambda: PredictionLimit(arl=ARL, min_effect=_LOG2)),
    PilotRule("kl_break", "aggregate/kl", "all", True, lambda: TrendBreak(arl=ARL, min_effect=_LOG15, sign=1)),
    PilotRule("grad_norm_growth", "aggregate/grad_norm", "all", True, lambda: PredictionLimit(arl=ARL, min_effect=_LOG15)),
    PilotRule("reward_drop", "aggregate/reward", "all", False, lambda: TrendBreak(arl=ARL, min_frac=0.05, sign=-1)),
    PilotRule("entropy_break", "aggregate/entropy", "all", True, lambda: TrendBreak(arl=ARL, min_effect=_LOG15, sign=0)),
)  # fmt: skip
