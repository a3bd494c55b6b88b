"""One RL run over a pool of tasks: an arm chooses the groups, everything else is equal.

GRPO with advantages divided by the group's standard deviation, on-policy, one AdamW update a batch, binary reward. Cost is
counted in rollouts; a run ends when its budget of them is used up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from reproduce.collapse_bank.batches import Array
from reproduce.collapse_bank.loop import STYLE, Rows
from reproduce.collapse_bank.rewards import advantages
from reproduce.collapse_bank.sampling import play
from reproduce.collapse_bank.transformer import Weights, token_logprobs
from reproduce.curriculum_bank.task_pool import task_pool
from trimtab.curriculum import Curriculum
from trimtab.lab.agent_episode import Episode
from trimtab.lab.tasks import correct_reward
from trimtab.lab.toolbox import Toolbox

__all__ = ["ARMS", "Settings", "train"]

MAX_TOKENS = 60
MAX_ROUNDS = 10
"""Rounds of oversampling for one update, as verl's max_num_gen_batches of DAPO."""


@dataclass(frozen=True)
class Settings:
    """What all arms of a run have in common."""

    rollouts: int = 3200
    groups: int = 4
    """Groups of one update, and of one round of sampling."""
    group_size: int = 8
    rate: float = 1.5e-4
    evaluate_early: int = 640
    """Rollouts between two evaluations in the first two thirds."""
    evaluate_late: int = 128
    """The same in the last third, where oscillation is measured."""


class Trainer:
    """Weights, tasks and counters of one run."""

    def __init__(self, start: Weights, seed: int, settings: Settings) -> None:
        torch.manual_seed(seed)
        self.settings, self.seed, self.pool = settings, seed, task_pool(seed)
        self.weights = {name: value.clone().requires_grad_(True) for name, value in start.items()}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=settings.rate, weight_decay=0.0)
        self.rounds = self.rollouts = self.updates = self.groups = self.wasted = 0
        self.empty_updates = 0
        """Updates of which no group had a gradient."""
        self.evaluations: list[dict[str, Any]] = []
        self.rng = np.random.default_rng([seed, 512])
        self._next_evaluation = 0
        self._queue: list[int] = []

    def sample(self, tasks: list[int]) -> tuple[list[Episode], Array]:
        """Roll every task out as a group; returns episodes and rewards (G, n)."""
        self.rounds += 1
        size = self.settings.group_size
        prompts = [self.pool.trained[task] for task in tasks for _ in range(size)]
        episodes = self._play(self.weights, prompts, self.rounds)
        rewards = _rewards(episodes).reshape(-1, size)
        self.rollouts += len(prompts)
        self.groups += len(tasks)
        self.wasted += int((np.ptp(rewards, axis=1) == 0).sum())
        return episodes, rewards

    def update(self, episodes: list[Episode], rewards: Array) -> None:
        """Make one optimizer step on some groups."""
        self.updates += 1
        self.empty_updates += int((np.ptp(rewards, axis=1) == 0).all())
        rows = Rows(episodes)
        advantage = torch.from_numpy(advantages(rewards.ravel(), self.settings.group_size)).float()
        self.optimizer.zero_grad()
        for chosen, width in rows.chunks():
            own = rows.own[chosen, :width].float()
            logp, _ = token_logprobs(self.weights, rows.ids[chosen, :width])
            gain = (advantage[chosen, None] * logp * own).sum(1) / own.sum(1).clamp(min=1)
            (-gain.sum() / rows.count).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), 1.0)
        self.optimizer.step()

    def evaluate_when_due(self) -> None:
        """Score the held-out tasks, all alike, with the same random numbers each time."""
        if self.rollouts < self._next_evaluation:
            return
        early = 3 * self.rollouts < 2 * self.settings.rollouts
        self._next_evaluation += self.settings.evaluate_early if early else self.settings.evaluate_late
        episodes = self._play(self.weights, self.pool.held_out, 0)
        by_family = _rewards(episodes).reshape(max(self.pool.held_out_family) + 1, -1).mean(axis=1)
        self.evaluations.append(
            {
                "rollouts": self.rollouts,
                "updates": self.updates,
                "families": [round(float(x), 4) for x in by_family],
            }
        )

    def _play(self, weights: Weights, prompts: list[str], number: int) -> list[Episode]:
        toolbox = Toolbox(self.pool.world, STYLE, self.seed)
        frozen = {name: value.detach() for name, value in weights.items()}
        return play(frozen, prompts, toolbox, batch=number, seed=self.seed, max_tokens=MAX_TOKENS)

    def uniform_tasks(self) -> list[int]:
        """Return the tasks of a round: each pass over the pool is a new permutation."""
        while len(self._queue) < self.settings.groups:
            self._queue += self.rng.permutation(len(self.pool.trained)).tolist()
        chosen, self._queue = self._queue[: self.settings.groups], self._queue[self.settings.groups :]
        return chosen


def uniform_arm(trainer: Trainer) -> Callable[[], None]:
    """Train on every group of a shuffled pass over the tasks."""

    def step() -> None:
        trainer.update(*trainer.sample(trainer.uniform_tasks()))

    return step


def dynamic_arm(trainer: Trainer) -> Callable[[], None]:
    """DAPO's dynamic sampling: sample on until the batch is full of groups with unequal rewards; drop the others."""
    size, settings = trainer.settings.group_size, trainer.settings

    def step() -> None:
        used: list[Episode] = []
        rewards: list[Array] = []
        for _ in range(MAX_ROUNDS):
            episodes, scores = trainer.sample(trainer.uniform_tasks())
            for group in np.flatnonzero(np.ptp(scores, axis=1) > 0):
                used += episodes[group * size : (group + 1) * size]
                rewards.append(scores[group])
            if len(rewards) >= settings.groups or trainer.rollouts >= settings.rollouts:
                break
            trainer.evaluate_when_due()
        if rewards:
            number = min(len(rewards), settings.groups)
            trainer.update(used[: number * size], np.array(rewards[:number]))

    return step


def curriculum_arm(trainer: Trainer) -> Callable[[], None]:
    """Train on every group of tasks that a curriculum draws; it knows their rewards, and which are of one family."""
    curriculum = Curriculum(len(trainer.pool.trained), strata=trainer.pool.trained_family, seed=trainer.seed)

    def step() -> None:
        tasks = [int(task) for task in curriculum.draw(trainer.settings.groups)]
        episodes, rewards = trainer.sample(tasks)
        curriculum.update(np.repeat(tasks, trainer.settings.group_size).tolist(), rewards.ravel())
        trainer.update(episodes, rewards)

    return step


ARMS: dict[str, Callable[[Trainer], Callable[[], None]]] = {
    "uniform": uniform_arm,
    "dynamic": dynamic_arm,
    "curriculum": curriculum_arm,
}


def train(arm: str, seed: int, start: Weights, settings: Settings) -> dict[str, Any]:
    """Train one run and return its record."""
    begin, trainer = time.process_time(), Trainer(start, seed, settings)
    step = ARMS[arm](trainer)
    trainer.evaluate_when_due()
    while trainer.rollouts < settings.rollouts:
        step()
        trainer.evaluate_when_due()
    return {
        "arm": arm,
        "seed": seed,
        "rollouts": trainer.rollouts,
        "updates": trainer.updates,
        "groups": trainer.groups,
        "wasted_groups": trainer.wasted,
        "empty_updates": trainer.empty_updates,
        "cpu_seconds": round(time.process_time() - begin, 1),
        "evaluations": trainer.evaluations,
    }


def _rewards(episodes: list[Episode]) -> Array:
    return np.array(
        correct_reward(final=[e.final for e in episodes], answer=[e.task.answer for e in episodes])
    )
