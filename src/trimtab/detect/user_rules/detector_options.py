"""What a user's rule may ask of each detector: the options' names, types and ranges. One table, read by `user_rules`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab.detect.detectors.base import Detector
from trimtab.detect.detectors.cusum import Cusum, PageHinkley
from trimtab.detect.detectors.e_process import EProcess
from trimtab.detect.detectors.excursion import Excursion
from trimtab.detect.detectors.mann_kendall import MannKendall
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.detectors.outlier import Outlier
from trimtab.detect.detectors.plateau_exit import PlateauExit
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.detectors.threshold import Threshold
from trimtab.detect.detectors.trend_break import TrendBreak


@dataclass(frozen=True)
class Option:
    """A detector's option: `kind` int, float or bool, in `low` to `high`, both allowed."""

    kind: type
    low: float = -math.inf
    high: float = math.inf
    required: bool = False

    def wrong(self, value: Any) -> str:
        """What is wrong with a value and what to give; empty when nothing is."""
        if self.kind is bool:
            return "" if isinstance(value, bool) else f"{value!r:.40} is no truth value; give true or false"
        word = "a whole number" if self.kind is int else "a finite number"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"{value!r:.40} is no number; give {word}{self._range()}"
        if not abs(value) < 1e300 or (self.kind is int and value != int(value)):
            return f"{value!r:.40} is not {word}; give {word}{self._range()}"
        return (
            ""
            if self.low <= value <= self.high
            else f"{value!r:.40} is out of range; give {word}{self._range()}"
        )

    def _range(self) -> str:
        if math.isinf(self.low):
            return ""
        return f", {self.low:g} or more" if math.isinf(self.high) else f", {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Kind:
    """A detector by its name in a rule file. `either`: it can watch both directions. `log`: it takes logarithms too.

    `check` says what is wrong with options that do not fit together: (option, text), or None.
    """

    make: Callable[..., Detector]
    options: dict[str, Option]
    either: bool = False
    log: bool = True
    check: Callable[[dict[str, Any]], tuple[str, str] | None] = lambda _: None


def _excursion(given: dict[str, Any]) -> tuple[str, str] | None:
    """Above its best it is a factor over one, below it one under."""
    up = given["sign"] > 0
    if up and given["factor"] <= 1.0:
        return (
            "factor",
            f"{given['factor']!r} with direction up never leaves the best level; give more than 1",
        )
    if not up and given["factor"] >= 1.0:
        return "factor", f"{given['factor']!r} with direction down always holds; give less than 1, as 0.5"
    if not up and "floor" in given:
        return "floor", "means something with direction up only; remove it"
    if given.get("memory", 100) < given.get("window", 5):
        return "memory", "is less than window; give a multiple of it"
    return None


def _leap(given: dict[str, Any]) -> tuple[str, str] | None:
    """A leap has a least size."""
    if given.get("min_effect", 0.0) > 0.0 or given.get("min_frac", 0.0) > 0.0:
        return None
    return (
        "min_effect",
        "is not given, nor is min_frac: every movement would be a leap; give one of them, above 0",
    )


def _threshold(given: dict[str, Any]) -> tuple[str, str] | None:
    """The level to return to is the limit, or on its calm side."""
    side = "above" if given["sign"] > 0 else "below"
    if given["sign"] * (given.get("back", given["limit"]) - given["limit"]) <= 0:
        return None
    level, limit = given["back"], given["limit"]
    return "back", f"{level:g} lies {side} the limit ({limit:g}), where the alarm still holds; leave it out or give a level on the other side"  # fmt: skip


def _change(given: dict[str, Any]) -> tuple[str, str] | None:
    """What is waited for must be kept."""
    least, memory = given.get("min_reference", 0), given.get("memory", MeanShift.memory)
    if least <= memory:
        return None
    return "min_reference", f"{least} is more than the memory ({memory}), so it waits for values it does not keep; give {memory} or less, or a longer memory"  # fmt: skip


def _warmed(warmup: int, memory: int) -> Callable[[dict[str, Any]], tuple[str, str] | None]:
    """A detector that keeps fewer values than it waits for would never judge."""

    def check(given: dict[str, Any]) -> tuple[str, str] | None:
        least = given.get("warmup", warmup)
        if given.get("memory", memory) >= least:
            return None
        return "memory", f"is less than warmup ({least}), so it would never judge; give {least} or more"

    return check


_EFFECT = Option(float, 0.0)
_FRAC = Option(float, 0.0, 1e6)
_COUNT = Option(int, 1, 10_000)
_BASELINE = Option(int, 4, 10_000)
_CUSUM = {"shift": Option(float, 0.1, 10.0), "baseline": Option(int, 10, 10_000)}

DETECTORS: dict[str, Kind] = {
    "change": Kind(
        MeanShift,
        {"lenient": Option(bool), "min_sd": _EFFECT, "min_effect": _EFFECT, "min_frac": _FRAC,
         "memory": Option(int, 16, 900), "min_reference": Option(int, 10, 900)},
        either=True, check=_change,
    ),
    "excursion": Kind(
        Excursion,
        {"factor": Option(float, 1e-9, 1e9, required=True), "window": Option(int, 1, 1_000),
         "memory": _COUNT, "floor": Option(float)},
        log=False, check=_excursion,
    ),
    "threshold": Kind(Threshold, {"limit": Option(float, required=True), "confirm": _COUNT, "back": Option(float)}, log=False, check=_threshold),
    "growth": Kind(PredictionLimit, {"baseline": _BASELINE, "confirm": _COUNT, "min_effect": _EFFECT}),
    "leap": Kind(
        StepChange,
        {"window": Option(int, 2, 500), "min_effect": Option(float, 0.0), "min_frac": _FRAC, "memory": _COUNT, "confirm": _COUNT},
        check=_leap,
    ),
    "trend": Kind(MannKendall, {"window": Option(int, 8, 500), "min_effect": _EFFECT}, either=True),
    "trend_break": Kind(
        TrendBreak, {"baseline": _BASELINE, "confirm": _COUNT, "min_effect": _EFFECT, "min_frac": _FRAC}, either=True
    ),
    "cusum": Kind(Cusum, _CUSUM),
    "page_hinkley": Kind(PageHinkley, _CUSUM),
    "e_process": Kind(EProcess, {"warmup": Option(int, 5, 10_000), "memory": _COUNT}, check=_warmed(20, 1_000)),
    "spike": Kind(
        Outlier, {"warmup": Option(int, 10, 10_000), "memory": _COUNT, "quiet": _COUNT}, check=_warmed(40, 200)
    ),
    "jump": Kind(
        PlateauExit, {"plateau": Option(int, 4, 10_000), "window": Option(int, 2, 1_000), "factor": Option(float, 0.1, 1e6)}
    ),
}  # fmt: skip
"""Name in a rule file -> detector."""
