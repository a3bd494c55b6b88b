"""Discounted Beta posteriors of each task's success rate, with the mean of its stratum as prior. M tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import bound

Floats = NDArray[np.float64]


class SuccessEstimates:
    """Success counts of M tasks that fade with a half-life, for the policy changes.

    The prior of a task is Beta(s m, s (1 - m)). Here m is the faded success rate of its stratum (a data
    source, a level), shrunk by one observation to that of all tasks, and s the prior's strength in rollouts.
    A task that was not drawn for long goes back to it.
    """

    def __init__(self, strata: NDArray[np.int64], half_life: float) -> None:
        self.strata, self.half_life = strata, half_life
        self.successes, self.rollouts = np.zeros(strata.size), np.zeros(strata.size)
        self.at = np.zeros(strata.size)  # batch that a task's counts are faded to
        num_strata = int(strata.max(initial=0)) + 1
        self.stratum_successes, self.stratum_rollouts = np.zeros(num_strata), np.zeros(num_strata)
        self.stratum_at = 0.0

    def add(self, task: int, batch: float, num_successes: int, num_rollouts: int) -> None:
        """Count one group's outcomes, at the clock's batch."""
        fade = 0.5 ** ((batch - self.at[task]) / self.half_life)
        self.successes[task] = self.successes[task] * fade + num_successes
        self.rollouts[task] = self.rollouts[task] * fade + num_rollouts
        self.at[task] = batch
        fade = 0.5 ** ((batch - self.stratum_at) / self.half_life)
        self.stratum_successes *= fade
        self.stratum_rollouts *= fade
        self.stratum_at = batch
        stratum = self.strata[task]
        self.stratum_successes[stratum] += num_successes
        self.stratum_rollouts[stratum] += num_rollouts

    def beta(self, batch: float) -> tuple[Floats, Floats]:
        """Return both parameters of every task's posterior, each (M,), as of a batch."""
        fade = 0.5 ** ((batch - self.at) / self.half_life)
        overall = (self.stratum_successes.sum() + 0.5) / (self.stratum_rollouts.sum() + 1.0)
        means = (self.stratum_successes + overall) / (self.stratum_rollouts + 1.0)
        prior, strength = means[self.strata], bound("curriculum_prior")
        wins = strength * prior + self.successes * fade
        losses = strength * (1.0 - prior) + (self.rollouts - self.successes) * fade
        return wins, losses

    def rates(self, batch: float) -> Floats:
        """Return the posterior mean of every success rate, (M,)."""
        wins, losses = self.beta(batch)
        return wins / (wins + losses)

    def learnability(self, batch: float) -> Floats:
        """Return the posterior mean of p (1 - p) of every task, (M,): the variance of a binary reward."""
        wins, losses = self.beta(batch)
        total = wins + losses
        return wins * losses / (total * (total + 1.0))

    def state(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the counts of some tasks and of the strata, as plain lists."""
        return {
            "successes": self.successes[rows].tolist(),
            "rollouts": self.rollouts[rows].tolist(),
            "at": self.at[rows].tolist(),
            "stratum_successes": self.stratum_successes.tolist(),
            "stratum_rollouts": self.stratum_rollouts.tolist(),
            "stratum_at": self.stratum_at,
        }

    def restore(self, rows: NDArray[np.int64], state: dict[str, Any]) -> None:
        """Take over what `state` returned for the same rows; other tasks have no counts."""
        for name in ("successes", "rollouts", "at"):
            values = np.zeros(self.strata.size)
            values[rows] = state[name]
            setattr(self, name, values)
        self.stratum_successes = np.array(state["stratum_successes"], float)
        self.stratum_rollouts = np.array(state["stratum_rollouts"], float)
        self.stratum_at = float(state["stratum_at"])
