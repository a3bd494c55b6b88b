"""Types of rules, and the factories of the detectors that rules use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import numpy as np

from trimtab.catalog import bound
from trimtab.catalog.definitions import UNCALIBRATED
from trimtab.detect.detectors.base import Detector
from trimtab.detect.detectors.composite_reading import Member
from trimtab.detect.detectors.drawdown import Drawdown
from trimtab.detect.detectors.excursion import Excursion
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.record_break import RecordBreak
from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.detectors.threshold import Threshold
from trimtab.types import Severity
from trimtab.typing import Float64


def count(name: str) -> int:
    """Return the catalog's bound `name` as a whole number."""
    return int(bound(name))


LONG, MEMORY = count("confirm_long"), count("long_memory")
Make = Callable[[float], Detector]
"""A detector for a false-alarm budget, in values between false alarms."""


@dataclass(frozen=True)
class Suppression:
    """Condition under which an alarm is information only: another reading moves since its evidence began."""

    key: str  # Reading that explains the alarm.
    sign: int  # Direction in which it must move: +1 up, -1 down.
    slice: str = "all"  # Slice of that reading.
    # Smallest movement that counts, as a z-score.
    min_score: float = field(default_factory=lambda: bound("suppression"))
    # True: the alarm is information as well where there is too little of that reading to compare.
    absent: bool = False
    min_steps: int = 0  # Evidence of fewer steps is never suppressed.
    settled: bool = False  # True: the condition holds too while that reading stands at its best after a rise.
    # Fewest of its last values that are compared with those before them; for fast alarms fewer.
    recent: int = int(bound("suppression_recent"))


LEARNS = Suppression("aggregate/reward", 1)
"""The reward rises."""
LEARNT = Suppression("aggregate/reward", 1, settled=True)
"""The reward rises, or has risen and stands at its best."""
SLOWLY = Suppression("aggregate/reward", 1, min_steps=64)
"""The reward rises, and the evidence took 64 steps or more."""


LARGEST = 1e100
"""What a detector takes for a larger reading, infinity included; its square is finite."""


@dataclass(frozen=True)
class Rule:
    """A detector on one reading of one slice, and the text of its alarms."""

    name: str  # Name in alarms and on disk.
    key: str  # Reading it judges, a row of the catalog.
    _: KW_ONLY
    # Slice it judges. One that ends in "*" means every slice that begins so, each with its own detector.
    slice: str = "all"
    # "tail": averages may hide what its alarms say. "aggregate": a dashboard of averages shows the same.
    # "machine": it says nothing of the training, and no verdict of calm rests on it.
    kind: Literal["tail", "aggregate", "machine"] = "aggregate"
    family: str  # Diagnosis it supports.
    transform: Literal["log", "identity"] = "identity"  # Applied to the reading before the detector sees it.
    detector: Make  # Factory of its detector.
    severity: Severity = "warning"
    what: str  # What the alarm says, one line.
    why: str  # Why it matters.
    advice: str  # What to do first.
    not_when: str = ""  # Situations in which this alarm is expected and harmless.
    reference: str = UNCALIBRATED  # Source of the rule or of its bound.
    suppressions: tuple[Suppression, ...] = ()  # Conditions under which its alarms are information only.
    weight: float = 1.0  # Part of the false-alarm budget, relative to the other rules.
    also: tuple[str, ...] = ()  # Further diagnoses it supports.
    floor: float = 0.0  # Added before a logarithm; more than 0 for a reading that may be 0.
    min_count: int = 0  # Readings known to rest on fewer tokens or calls are left out.
    positive: bool = False  # True: readings of 0 or less are left out.
    # Readings that a composite one adds up. Its alarm waits until two of them have moved.
    members: tuple[Member, ...] = ()

    def value(self, raw: float) -> float:
        """Return the value the detector sees; nan, which detectors skip, for the log of zero or less.

        An infinite reading is the largest value, not a missing one: detectors skip what is not finite.
        """
        raw = min(raw, LARGEST) if raw == raw else raw
        if self.transform == "identity":
            return math.nan if self.positive and raw <= 0 else raw
        raised = raw + self.floor
        return math.log(raised) if raised > 0 else math.nan

    def values(self, raw: Float64) -> Float64:
        """Return `value` for a whole series."""
        raw = np.minimum(raw, LARGEST)
        if self.transform == "identity":
            return np.where(raw > 0, raw, math.nan) if self.positive else raw
        with np.errstate(divide="ignore", invalid="ignore"):
            raised = raw + self.floor
            return np.where(raised > 0, np.log(raised), math.nan)

    def raw(self, value: float) -> float:
        """Return the reading's own unit for a value of the detector."""
        return math.exp(min(value, 700.0)) - self.floor if self.transform == "log" else value

    def covers(self, name: str) -> bool:
        """Does the rule judge slice `name`? "tool/*" is every tool, not every value of their arguments."""
        if self.slice == "tool/*" and "=" in name:
            return False
        return name == self.slice or (self.slice.endswith("*") and name.startswith(self.slice[:-1]))


@dataclass(frozen=True)
class StreamRule:
    """A rule on the step stream itself (non-finite values, missing columns): the same texts, no reading."""

    name: str
    severity: Severity
    what: str
    why: str
    advice: str
    reference: str


def split(rules: tuple[Rule, ...], total: float) -> dict[str, float]:
    """Return rule -> values between its false alarms, for one false alarm of all rules in `total` steps.

    A rule on many slices divides its part among 17 (16 named ones and `other`). One of weight 0 has no part
    (infinity): its rate is measured, not set.

    >>> from trimtab.detect.rules.all_rules import RULES
    >>> budgets = split(RULES, 10_000.0)
    >>> round(sum((17 if r.slice.endswith("*") else 1) / budgets[r.name] for r in RULES) * 10_000.0, 6)
    1.0
    """
    weights = sum(rule.weight for rule in rules)
    return {
        rule.name: total * weights / rule.weight * (17.0 if rule.slice.endswith("*") else 1.0)
        if rule.weight
        else math.inf
        for rule in rules
    }


def mean_shift(sign: int, **options: Any) -> Make:
    """Return a factory of `MeanShift` for a series with a value a step."""
    return lambda arl: MeanShift(arl=arl, sign=sign, **options)


def fraction_shift(sign: int) -> Make:
    """Return a factory of `MeanShift` for the log of a fraction that may be 0, its `floor` added."""
    return mean_shift(sign, min_effect=bound("share_change"))


def sparse_mean_shift(sign: int, **options: Any) -> Make:
    """Return a factory of `MeanShift` for a series with few values, like evaluations."""
    return mean_shift(sign, min_reference=10, scales=(2, 4, 8, 16), **options)


def excursion(sign: int, factor: float, **options: Any) -> Make:
    """Return a factory of `Excursion`."""
    options = {"memory": count("memory"), **options}
    return lambda arl: Excursion(sign=sign, factor=factor, arl=arl, **options)


def step_change(sign: int, *, max_arl: float = math.inf, **options: Any) -> Make:
    """Return a factory of `StepChange` with at most `max_arl` values between false alarms."""
    return lambda arl: StepChange(sign=sign, arl=min(arl, max_arl), **options)


def threshold(name: str, sign: int, *, confirm: int = count("confirm_short")) -> Make:
    """Return a factory of `Threshold` at the catalog's bound `name`."""
    return lambda arl: Threshold(limit=bound(name), sign=sign, confirm=confirm, arl=arl)


def drawdown(sign: int, **options: Any) -> Make:
    """Return a factory of `Drawdown` for evaluations, which are few."""
    return lambda arl: Drawdown(arl=min(arl, bound("arl_evaluations")), sign=sign, **options)


def growth(min_effect: float) -> Make:
    """Return a factory of `PredictionLimit` upwards, three values in a row."""
    return lambda arl: PredictionLimit(arl=arl, confirm=3, min_effect=min_effect)


def record_break(sign: int, level: str, margin: str, **options: Any) -> Make:
    """Return a factory of `RecordBreak` on logarithms, at the catalog's bounds; its rate is measured."""
    low, by = math.log(bound(level)), bound(margin)
    return lambda _arl: RecordBreak(low, by, sign=sign, **options)
