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

__all__ = ["ALL_ARMS", "CAUSES", "FEW_ARMS", "HEALTHY_ARMS", "HORIZON", "LAST", "TEST_SEEDS", "TUNING_SEEDS", "Fault", "arms_of", "regime_of"]  # fmt: skip

TEST_SEEDS = range(300, 346)
"""Seeds of the test, used for nothing before; they are taken in order."""
HORIZON = 70
"""Steps trained from the fault on."""
LAST = 30
"""A run is judged by the mean reward of so many steps at its end."""

FEW_ARMS = ("none", "guard", "placebo")
ALL_ARMS = (*FEW_ARMS, "delayed", "oracle", *REMEDIES, "best_checkpoint")
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


def arms_of(cause: str) -> tuple[str, ...]:
    """Return the arms of a cause, or of the run without a fault."""
    return HEALTHY_ARMS if cause == "healthy" else CAUSES[cause].arms
