"""What a rule is: a detector on a reading of a slice, with a share of the budget and the words a person needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Detector
from trimtab.detect.detectors.composite_reading import Member
from trimtab.detect.detectors.excursion import Excursion
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.detectors.threshold import Threshold
from trimtab.types import Severity

LONG = int(bound("confirm_long"))
MEMORY = int(bound("long_memory"))

Make = Callable[[float], Detector]
"""A detector for a false-alarm budget, in values between false alarms."""


@dataclass(frozen=True)
class Suppression:
    """An alarm is information only while this other reading moves too: `sign` +1 up, -1 down, since the alarm's evidence began.

    `settled`: it also holds while that reading stands at its best after a rise. `slow`: only evidence that took at least so many steps is excused. `least` is the movement in normal deviates that counts; `absent` says whether an alarm is excused where the reading is not there.
    `recent`: the fewest of its last values that are compared with those before them; for fast alarms fewer.
    """

    key: str
    sign: int
    slice: str = "all"
    least: float = field(default_factory=lambda: bound("excuse"))
    absent: bool = False
    slow: int = 0
    settled: bool = False
    recent: int = int(bound("excuse_recent"))


@dataclass(frozen=True)
class Rule:
    """A detector on one reading of one slice; a slice ending in "*" means every slice that begins so, each with its own detector.

    `transform` is applied before the detector sees the value, a log after adding `floor`: more than 0 for a reading that may be 0. `kind` "tail" rules may be hidden; "aggregate" rules are the ones
    that would have told a dashboard's reader. `family` is the diagnosis it speaks for, `also` those it may as well be. `weight` is its share of the run's
    false-alarm budget. A reading known to rest on fewer than `least` tokens or calls is left out, and
    with `positive` one of 0 or less. `members`: the readings a joint one adds up; while fewer than two moved its alarm waits. `what` one line, `why` it matters, `advice` what to do first, `unless` in words when not to
    trust it.
    """

    name: str
    key: str
    slice: str
    kind: Literal["tail", "aggregate"]
    family: str
    transform: Literal["log", "identity"]
    detector: Make
    severity: Severity
    what: str
    why: str
    advice: str
    not_when: str
    reference: str
    excuses: tuple[Suppression, ...] = ()
    weight: float = 1.0
    also: tuple[str, ...] = ()
    floor: float = 0.0
    least: int = 0
    positive: bool = False
    members: tuple[Member, ...] = ()

    def value(self, raw: float) -> float:
        """The value the detector sees; a log of zero or less is nan, which detectors count and skip."""
        if self.transform == "identity":
            return math.nan if self.positive and raw <= 0 else raw
        raised = raw + self.floor
        return math.log(raised) if raised > 0 else math.nan

    def values(self, raw: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """`value` for a whole series."""
        if self.transform == "identity":
            return np.where(raw > 0, raw, math.nan) if self.positive else raw
        with np.errstate(divide="ignore", invalid="ignore"):
            raised = raw + self.floor
            return np.where(raised > 0, np.log(raised), math.nan)

    def raw(self, value: float) -> float:
        """The reading's own unit back from the detector's."""
        return math.exp(min(value, 700.0)) - self.floor if self.transform == "log" else value

    def covers(self, name: str) -> bool:
        """Does the rule speak about slice `name`? "tool/*" is every tool, not every value of their arguments."""
        if self.slice == "tool/*" and "=" in name:
            return False
        return name == self.slice or (self.slice.endswith("*") and name.startswith(self.slice[:-1]))


@dataclass(frozen=True)
class StreamRule:
    """A rule on the step stream itself (non-finite values, silence): same words, no reading."""

    name: str
    severity: Severity
    what: str
    why: str
    advice: str
    reference: str


def split(rules: tuple[Rule, ...], total: float) -> dict[str, float]:
    """Rule -> values between its false alarms, so that all rules together alarm falsely once in `total` steps.

    A rule on many slices shares its part among 17 (16 named ones and `other`).

    >>> from trimtab.detect.rules.all_rules import RULES
    >>> budgets = split(RULES, 10_000.0)
    >>> round(sum((17 if r.slice.endswith("*") else 1) / budgets[r.name] for r in RULES) * 10_000.0, 6)
    1.0
    """
    weights = sum(rule.weight for rule in rules)
    return {
        rule.name: total * weights / rule.weight * (17.0 if rule.slice.endswith("*") else 1.0)
        for rule in rules
    }


def change(sign: int, *, lenient: bool = False, min_effect: float = 0.0, min_frac: float = 0.0) -> Make:
    """A `MeanShift` of a series with a value a step."""
    return lambda arl: MeanShift(
        arl=arl, sign=sign, lenient=lenient, min_effect=min_effect, min_frac=min_frac
    )


def share_change(sign: int) -> Make:
    """A `MeanShift` of the log of a share that may be 0, its `floor` added."""
    return change(sign, min_effect=bound("share_change"))


def rare_change(sign: int, *, min_effect: float = 0.0, min_frac: float = 0.0) -> Make:
    """A `MeanShift` of a series with few values, like evaluations."""
    return lambda arl: MeanShift(
        arl=arl, sign=sign, min_effect=min_effect, min_frac=min_frac, min_reference=10, scales=(2, 4, 8, 16)
    )


def excursion(
    sign: int,
    factor: float,
    *,
    floor: float = -math.inf,
    memory: int = int(bound("memory")),
    confirm: int = 3,
    warmup: int = 0,
) -> Make:
    """An `Excursion`."""
    return lambda arl: Excursion(
        sign=sign, factor=factor, floor=floor, memory=memory, arl=arl, confirm=confirm, warmup=warmup
    )


def leap(sign: int, *, min_effect: float = 0.0, min_frac: float = 0.0, longest: float = math.inf) -> Make:
    """A `StepChange`; at most `longest` values between false alarms are asked of it."""
    return lambda arl: StepChange(sign=sign, min_effect=min_effect, min_frac=min_frac, arl=min(arl, longest))


def beyond(name: str, sign: int, confirm: int = int(bound("confirm_short"))) -> Make:
    """A `Threshold` at the catalog's bound `name`."""
    return lambda arl: Threshold(limit=bound(name), sign=sign, confirm=confirm, arl=arl)
