"""The grid: PPO and PPO-EWMA, with the batch-size rules and without, at three batch sizes; and the settings of one run of it.

A batch is the episodes of one iteration: sampled at once, then used for `UPDATES` optimizer steps of a minibatch each, one epoch. A
factor divides or multiplies both, as arXiv 2110.00641 section 4 does, so a run of any factor takes `UPDATES` steps an iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab.errors import RunError

__all__ = ["ARMS", "BATCH", "CHECKPOINT", "EPISODES", "EVALUATED", "FACTORS", "GROUP", "SEEDS", "UPDATES", "Cell", "Method", "cells_of", "check_episodes", "settings_of"]  # fmt: skip

FACTORS = (0.25, 1.0, 4.0)
BATCH, UPDATES, GROUP = 64, 4, 8
"""Episodes of an iteration at factor 1; optimizer steps on them; completions of a prompt."""

EPISODES, CHECKPOINT, EVALUATED = 1536, 256, 512
"""Episodes of a run; between two evaluations, whole iterations at every factor; of an evaluation."""

SEEDS = 4

LEARNING_RATE, BETAS, CENTRE_OF_MASS = 3e-4, (0.9, 0.999), 4.0

EPSILON = 0.05
"""So narrow that the clip acts on every batch. At the usual 0.2 it touched 0 to 4 % of the tokens after the first 256 episodes (three runs of
PPO, seed 0, rate 2e-4, not kept), and then it hardly matters what it is anchored at."""


@dataclass(frozen=True)
class Method:
    """`ewma`: the clip is anchored at the weight average, else at the policy that sampled. `rules`: settings follow the batch."""

    ewma: bool
    rules: bool


ARMS = {
    "ppo": Method(ewma=False, rules=False),
    "ppo_rules": Method(ewma=False, rules=True),
    "ewma": Method(ewma=True, rules=False),
    "ewma_rules": Method(ewma=True, rules=True),
}


@dataclass(frozen=True)
class Cell:
    """One run. At factor 1 the rules change nothing, so an arm with rules shares the run of the arm without."""

    arm: str
    factor: float
    seed: int

    @property
    def recorded(self) -> Cell:
        """The run that is trained for this cell."""
        arm = self.arm.removesuffix("_rules") if self.factor == 1.0 else self.arm
        return Cell(arm, self.factor, self.seed)

    @property
    def name(self) -> str:
        """Of the folder: ewma_rules-x0.25-s0."""
        return f"{self.arm}-x{self.factor:g}-s{self.seed}"


def cells_of(arms: list[str], seeds: int) -> list[Cell]:
    """Every run that is asked for, once, seed by seed."""
    found = (Cell(arm, factor, seed).recorded for seed in range(seeds) for arm in arms for factor in FACTORS)
    return list(dict.fromkeys(found))


def check_episodes(episodes: int) -> int:
    """RunError unless every batch size reaches each evaluation, and the end, with whole iterations."""
    if episodes < CHECKPOINT or episodes % CHECKPOINT:
        raise RunError(f"a run's episodes must be a multiple of {CHECKPOINT}, got {episodes}")
    return episodes


def settings_of(cell: Cell) -> dict[str, Any]:
    """Fields of MiniRLConfig for this run; with rules, by `batch_size_rules` from those of factor 1."""
    from trimtab.objectives import batch_size_rules

    method = ARMS[cell.arm]
    rules = batch_size_rules(
        cell.factor if method.rules else 1.0,
        learning_rate=LEARNING_RATE,
        betas=BETAS,
        centre_of_mass=CENTRE_OF_MASS,
    )
    return {
        "objective": "decoupled",
        "epsilon": EPSILON,
        "ewma_centre_of_mass": rules.centre_of_mass if method.ewma else None,
        "learning_rate": rules.learning_rate,
        "adam_beta1": rules.betas[0],
        "adam_beta2": rules.betas[1],
        "per_device_train_batch_size": round(BATCH * cell.factor) // UPDATES,
        "steps_per_generation": UPDATES,
        "max_grad_norm": 0.0,  # a bound on the norm would act at one batch size and not at another
    }
