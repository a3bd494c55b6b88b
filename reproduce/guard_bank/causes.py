"""The faults of the closed-loop test, the arms each is run with, and what an oracle does about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reproduce.collapse_bank.regimes import FAULTS, HEALTHY, TUNING_SEEDS, Regime
from reproduce.guard_bank.remedies import REMEDIES
from trimtab.errors import TrimtabError
from trimtab.lab.ramp import Ramp
from trimtab.types import Lever

__all__ = ["ALL_ARMS", "CAUSES", "FEW_ARMS", "HALVES", "HEALTHY_ARMS", "HORIZON", "LAST", "TEST_SEEDS", "TUNING_SEEDS", "Fault", "arms_of", "causes_of", "half_of", "regime_of"]  # fmt: skip

HALVES = {"test": range(300, 346), "second": range(346, 362)}
"""Seeds of each registered test, used for nothing before; they are taken in order."""
TEST_SEEDS = range(300, 362)
"""Seeds of all tests."""
HORIZON = 70
"""Steps trained from the fault on."""
LAST = 30
"""A run is judged by the mean reward of so many steps at its end."""

FEW_ARMS = ("none", "guard", "placebo")
ALL_ARMS = (*FEW_ARMS, "delayed", "oracle", *REMEDIES, "best_checkpoint")
SECOND_ARMS = (*FEW_ARMS, "delayed", "oracle", "low_rate")
"""Arms of the causes of the second test."""
HEALTHY_ARMS = ("none", "guard", "rerun")
"""Arms of the run that meets no fault; `rerun`: other draws from the step on at which the others meet it."""


@dataclass(frozen=True)
class Fault:
    """What changes at the fault, and what someone who knows it does at once."""

    change: Mapping[str, Any]
    """Fields of the healthy regime."""
    oracle: Mapping[Lever, float]
    """Levers that remove the cause, or counter it best."""
    arms: tuple[str, ...] = FEW_ARMS


TRIPLED, DOUBLED = 3.0, 2.0
"""Factors on the learning rate: a schedule that goes wrong. The first loses half of the reward in 16 steps, the second over 40."""


def _rate(factor: float, arms: tuple[str, ...]) -> Fault:
    return Fault({"rate": Ramp.constant(factor * HEALTHY_RATE)}, {"lr_scale": 1 / factor}, arms)


HEALTHY_RATE = HEALTHY.rate.at(1)
CAUSES: Mapping[str, Fault] = {
    "stale_fault": Fault(FAULTS["stale_fault"], {"max_lag": 1.0}, ALL_ARMS),
    "rate_fault": _rate(TRIPLED, ALL_ARMS),
    "slow_rate_fault": _rate(DOUBLED, FEW_ARMS),
    "shift_fault": Fault(FAULTS["shift_fault"], {}),
}
"""Cause -> fault; the first two are run with every arm."""


def regime_of(cause: str) -> Regime:
    """Return the regime that a cause brings about; that of no fault for `healthy`."""
    if cause == "healthy":
        return HEALTHY
    if cause not in CAUSES:
        raise TrimtabError(f"no cause called {cause!r}; there are {', '.join(CAUSES)}")
    return replace(HEALTHY, **CAUSES[cause].change)


def half_of(seed: int) -> str:
    """Return the name in `HALVES` of the test that a seed is for, else `tuning`."""
    return next((name for name, seeds in HALVES.items() if seed in seeds), "tuning")


def arms_of(cause: str, seed: int = TUNING_SEEDS[0]) -> tuple[str, ...]:
    """Return the arms of a cause, or of the run without a fault; the second test has fewer."""
    if cause == "healthy":
        return HEALTHY_ARMS
    arms = CAUSES[cause].arms
    return tuple(arm for arm in arms if arm in SECOND_ARMS) if half_of(seed) == "second" else arms


def causes_of(half: str) -> tuple[str, ...]:
    """Return the causes of a half: all, but for the second test, which has those with all arms."""
    return tuple(name for name, fault in CAUSES.items() if half != "second" or fault.arms == ALL_ARMS)
