"""Detectors that a user's rule may name, and the types and ranges of their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trimtab.detect.detectors.base import Detector
from trimtab.detect.detectors.cusum import Cusum, PageHinkley
from trimtab.detect.detectors.e_process import EProcess
from trimtab.detect.detectors.excursion import Excursion
from trimtab.detect.detectors.mann_kendall import MannKendall
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.detectors.outlier import Outlier
from trimtab.detect.detectors.plateau import PlateauExit
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.detectors.threshold import Threshold
from trimtab.detect.detectors.trend_break import TrendBreak

Options = dict[str, Any]
Problem = tuple[str, str] | None
"""An option that does not fit the others, and what is wrong; None where all fit."""
SIGNS = {"up": 1, "down": -1, "either": 0}


@dataclass(frozen=True)
class Kind:
    """A detector by its name in a rule file."""

    make: Callable[..., Detector]
    options: Options  # name -> type
    required: tuple[str, ...] = ()
    either: bool = False  # True: it can watch both directions
    log: bool = True  # False: it works on the reading's own scale only
    check: Callable[[Options], Problem] = lambda _: None  # of the options, with `sign`

    @property
    def struct(self) -> type[msgspec.Struct]:
        """The options, with `direction`, as a type to convert to."""
        directions = Literal["up", "down", "either"] if self.either else Literal["up", "down"]
        fields = [(n, t) if n in self.required else (n, t, None) for n, t in self.options.items()]
        return msgspec.defstruct(
            "Options", [("direction", directions), *fields], kw_only=True, forbid_unknown_fields=True
        )


def _excursion(options: Options) -> Problem:
    """Above its best it is a factor over one, below it one under."""
    up, factor = options["sign"] > 0, options["factor"]
    if up and factor <= 1.0:
        return "factor", f"{factor:g} with direction up never leaves the best level; give more than 1"
    if not up and factor >= 1.0:
        return "factor", f"{factor:g} with direction down always fires; give less than 1, as 0.5"
    if not up and "floor" in options:
        return "floor", "means something with direction up only; remove it"
    if options.get("memory", Excursion.memory) < options.get("window", Excursion.window):
        return "memory", "is less than window; give a multiple of it"
    return None


def _step_change(options: Options) -> Problem:
    """It needs a smallest size."""
    if options.get("min_effect", 0.0) > 0.0 or options.get("min_frac", 0.0) > 0.0:
        return None
    return "min_effect", "is missing, and so is min_frac: any movement would fire; give one of them, above 0"


def _threshold(options: Options) -> Problem:
    """The level to return to is the limit, or on its calm side."""
    sign, limit = options["sign"], options["limit"]
    back = options.get("back", limit)
    if sign * (back - limit) <= 0:
        return None
    side = "above" if sign > 0 else "below"
    text = f"{back:g} lies {side} the limit ({limit:g}), where the alarm still stands"
    return "back", f"{text}; leave it out or give a level on the other side"


def _mean_shift(options: Options) -> Problem:
    """It must keep as many values as it waits for."""
    reference, memory = options.get("min_reference", 0), options.get("memory", MeanShift.memory)
    if reference <= memory:
        return None
    text = f"{reference} is more than the memory ({memory}), so it waits for values it does not keep"
    return "min_reference", f"{text}; give {memory} or less, or a longer memory"


def _warmed(detector: type[EProcess | Outlier]) -> Callable[[Options], Problem]:
    """Return a check that the detector keeps as many values as it waits for."""

    def check(options: Options) -> Problem:
        warmup = options.get("warmup", detector.warmup)
        if options.get("memory", detector.memory) >= warmup:
            return None
        return "memory", f"is less than warmup ({warmup}), so it would never judge; give {warmup} or more"

    return check


def _int(low: int, high: int = 10_000) -> Any:
    return Annotated[int, Meta(ge=low, le=high)]


def _float(low: float = -1e300, high: float = 1e300) -> Any:
    return Annotated[float, Meta(ge=low, le=high)]


_SIZE, _FRAC, _COUNT, _BASELINE = _float(0.0), _float(0.0, 1e6), _int(1), _int(4)
_CUSUM = {"shift": _float(0.1, 10.0), "baseline": _int(10)}
_GROWTH = {"baseline": _BASELINE, "confirm": _COUNT, "min_effect": _SIZE}

DETECTORS: dict[str, Kind] = {
    "change": Kind(
        MeanShift,
        {"lenient": bool, "min_sd": _SIZE, "min_effect": _SIZE, "min_frac": _FRAC, "memory": _int(16, 900),
         "min_reference": _int(10, 900)},
        either=True, check=_mean_shift,
    ),
    "excursion": Kind(
        Excursion,
        {"factor": _float(1e-9, 1e9), "window": _int(1, 1_000), "memory": _COUNT, "floor": _float()},
        ("factor",), log=False, check=_excursion,
    ),
    "threshold": Kind(
        Threshold, {"limit": _float(), "confirm": _COUNT, "back": _float()}, ("limit",), log=False,
        check=_threshold,
    ),
    "growth": Kind(PredictionLimit, _GROWTH),
    "leap": Kind(
        StepChange,
        {"window": _int(2, 500), "min_effect": _SIZE, "min_frac": _FRAC, "memory": _COUNT, "confirm": _COUNT},
        check=_step_change,
    ),
    "trend": Kind(MannKendall, {"window": _int(8, 500), "min_effect": _SIZE}, either=True),
    "trend_break": Kind(TrendBreak, _GROWTH | {"min_frac": _FRAC}, either=True),
    "cusum": Kind(Cusum, _CUSUM),
    "page_hinkley": Kind(PageHinkley, _CUSUM),
    "e_process": Kind(EProcess, {"warmup": _int(5), "memory": _COUNT}, check=_warmed(EProcess)),
    "spike": Kind(Outlier, {"warmup": _int(10), "memory": _COUNT, "quiet": _COUNT}, check=_warmed(Outlier)),
    "jump": Kind(PlateauExit, {"plateau": _int(4), "window": _int(2, 1_000), "factor": _float(0.1, 1e6)}),
}  # fmt: skip
"""Name in a rule file -> detector."""
