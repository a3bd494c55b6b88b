"""What is trained: regimes, the faults that break a healthy one in mid-run, and the slow collapses with their stable relatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.lab.ramp import Ramp

__all__ = ["CAUSES", "FAULTS", "HALVES", "HEALTHY", "SLOW", "TEST_SEEDS", "TUNING_SEEDS", "Regime", "SlowCause", "fault_step", "half_of", "runs_of"]  # fmt: skip

TUNING_SEEDS = range(100, 140)
HALVES = {
    "tuning": TUNING_SEEDS,
    "test": range(200, 230),
    "second": range(230, 246),
    "third": range(246, 262),
}
"""What each seed is for: tuning, or one of the registered tests; a test seed is trained once."""
TEST_SEEDS = range(200, 262)
"""Seeds of all registered tests."""
FIRST_FAULT, LAST_FAULT = 60, 80
"""A fault sets in at a step drawn from these, both included."""


@dataclass(frozen=True)
class Regime:
    """One way to train. A fault is a change of these fields in mid-run."""

    rate: Ramp
    """Learning rate of AdamW at each step."""
    lag: int = 1
    """Updates between sampling a batch and training on it."""
    bits: int = 0
    """Bits of the sampler's weights; 0: the trainer's own float32."""
    frozen: bool = False
    """The sampler keeps the weights it had when this became true."""
    tool_failures: float = 0.0
    """Fraction of tool calls that fail; an episode with one is scored 0."""
    shifted: bool = False
    """The trainer reads each token's log-probability one position too late."""
    proxy: float = 0.0
    """Weight of a reward for long answers in the reward that is trained on."""
    alpha: Ramp = field(default_factory=lambda: Ramp(0.15, 0.6, start=0, span=60))
    """Fraction of tool tasks at each step."""
    steps: int = 170
    """Length of a run that does not collapse."""


HEALTHY = Regime(Ramp.constant(7e-4))
"""The run that faults break. Rollouts are one update old, as in an asynchronous trainer; no importance weights."""

FAULTS: Mapping[str, Mapping[str, Any]] = {
    "stale_fault": {"lag": 8},
    "quantised_fault": {"bits": 3},
    "frozen_fault": {"frozen": True},
    "tool_fault": {"tool_failures": 0.3},
    "shift_fault": {"shifted": True},
}
"""Cause -> fields of `HEALTHY` that change at the fault."""


@dataclass(frozen=True)
class SlowCause:
    """A regime that collapses by itself, one like it that is stable, and one with the same learning rates without the cause."""

    collapse: Regime
    twin: Regime
    control: Regime


RISING = Ramp(3e-4, 1.8e-3, start=30, span=150)
LONGER = Ramp(0.15, 0.6, start=0, span=100)
_RAMP = Regime(RISING, lag=2, alpha=LONGER)
_CONSTANT = Regime(Ramp.constant(8e-4), lag=3, alpha=LONGER, steps=200)
_QUANTISED = Regime(Ramp.constant(9e-4), lag=0, bits=4, alpha=LONGER, steps=200)
_PROXY = Regime(Ramp.constant(1.5e-4), lag=0, proxy=0.3, alpha=LONGER, steps=140)

SLOW: Mapping[str, SlowCause] = {
    "stale_ramp": SlowCause(_RAMP, replace(_RAMP, rate=Ramp.constant(3e-4)), replace(_RAMP, lag=0)),
    "stale_constant": SlowCause(
        _CONSTANT, replace(_CONSTANT, rate=Ramp.constant(3e-4)), replace(_CONSTANT, lag=0)
    ),
    "quantised": SlowCause(
        _QUANTISED, replace(_QUANTISED, rate=Ramp.constant(3e-4)), replace(_QUANTISED, bits=0)
    ),
    "proxy_reward": SlowCause(_PROXY, replace(_PROXY, proxy=0.05), replace(_PROXY, proxy=0.0)),
}

CAUSES = ("healthy", *FAULTS, *SLOW)
"""Names of archives: the shared healthy runs, the faults, the slow collapses."""


def fault_step(seed: int) -> int:
    """Return the first step at which the faults of a seed act."""
    return int(np.random.default_rng([seed, 505]).integers(FIRST_FAULT, LAST_FAULT + 1))


def half_of(seed: int) -> str:
    """Return the name in `HALVES` of what a seed is for; raises TrimtabError for a seed that is for nothing."""
    for name, seeds in HALVES.items():
        if seed in seeds:
            return name
    raise TrimtabError(
        f"seed {seed} is neither a tuning seed (100 to 139) nor a test seed (200 to {TEST_SEEDS[-1]})"
    )


def runs_of(cause: str) -> tuple[str, ...]:
    """Return the roles of the runs that a cause has for each seed; raises TrimtabError for an unknown cause."""
    if cause not in CAUSES:
        raise TrimtabError(f"no cause called {cause!r}; there are {', '.join(CAUSES)}")
    return (
        ("collapse", "twin", "control")
        if cause in SLOW
        else (("control",) if cause == "healthy" else ("collapse",))
    )
