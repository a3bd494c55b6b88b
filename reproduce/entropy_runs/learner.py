"""One run: the lab agent, two updates on each batch with the clip of PPO left at 0.2, and the supports of one arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduce.collapse_bank.loop import STYLE, Rows
from reproduce.collapse_bank.sampling import FailingToolbox, play
from reproduce.collapse_bank.transformer import Weights, logits_of
from trimtab.lab.agent_episode import Episode
from trimtab.lab.database import TOOL_NAMES, World, word
from trimtab.lab.tasks import TEXT_KINDS, correct_reward
from trimtab.objectives import EntropyTarget, dapo, entropy_bonus, group_advantages, select_by_covariance

__all__ = ["ARMS", "Arm", "Learner", "TaskSelection", "train"]

KINDS = (*TOOL_NAMES, "both", *TEXT_KINDS)
PROMPTS, GENERATIONS, UPDATES = 6, 8, 2
MAX_TOKENS, CHUNK = 40, 16
EPSILON, RATE, MAX_GRADIENT = 0.2, 5e-4, 1.0
TARGET = 0.25  # nats a token
EVALUATED = (6, 4)  # held-out prompts of each kind, answers to each
HELD_OUT = 5  # items whose number is a multiple of this are in held-out prompts alone


@dataclass(frozen=True)
class Arm:
    """What supports the entropy; without any it is the baseline. The clip is the same in all."""

    what: str
    bonus: float = 0.0
    """Largest coefficient of an entropy bonus that acts while the step's mean entropy is under `TARGET`; loss per nat."""
    tasks: bool = False
    """Kinds of tasks of intermediate success are drawn more often."""
    covariance: float = 0.0
    """Fraction of a batch's tokens left out: those that lower the entropy most."""


ARMS: Mapping[str, Arm] = {
    "baseline": Arm("nothing"),
    "bonus": Arm("entropy bonus up to 0.05, the trainer's default", bonus=0.05),
    "bonus_strong": Arm("entropy bonus up to 0.2", bonus=0.2),
    "tasks": Arm("kinds of tasks of intermediate success", tasks=True),
    "both": Arm("bonus up to 0.05, and those tasks", bonus=0.05, tasks=True),
    "covariance": Arm("2 % of the tokens left out, those of the largest covariance", covariance=0.02),
}


class TaskSelection:
    """Draw kinds of tasks, uniformly or by success: weight 4 p (1 - p) + `FLOOR`, p a moving mean of the groups' success.

    >>> own = TaskSelection(("easy", "open"), by_success=True)
    >>> for _ in range(30): own.update("easy", 1.0)
    >>> [round(weight, 2) for weight in own.weights()]
    [0.11, 0.89]
    """

    FLOOR, DECAY = 0.1, 0.8

    def __init__(self, kinds: Sequence[str], by_success: bool) -> None:
        self.kinds, self.by_success = tuple(kinds), by_success
        self.success = dict.fromkeys(kinds, 0.5)

    def weights(self) -> list[float]:
        """Return the probability of each kind."""
        raw = [4 * p * (1 - p) + self.FLOOR if self.by_success else 1.0 for p in self.success.values()]
        return [value / sum(raw) for value in raw]

    def draw(self, rng: np.random.Generator, count: int) -> list[str]:
        """Return `count` kinds."""
        return [str(kind) for kind in rng.choice(self.kinds, count, p=self.weights())]

    def update(self, kind: str, success: float) -> None:
        """Take the fraction of a group that was right."""
        self.success[kind] = self.DECAY * self.success[kind] + (1 - self.DECAY) * success


def prompt_of(kind: str, world: World, rng: np.random.Generator, *, held_out: bool) -> str:
    """Return a prompt of a kind; items of held-out prompts are in no other."""
    if kind == "add":
        return f"add {rng.integers(10)} {rng.integers(10)}?"
    if kind in TEXT_KINDS:
        return f"{kind} {word(rng)}?"
    items = [name for at, name in enumerate(world.items) if (at % HELD_OUT == 0) == held_out]
    item = items[int(rng.integers(len(items)))]
    first, second = (TOOL_NAMES[int(at)] for at in rng.choice(len(TOOL_NAMES), 2, replace=False))
    return f"{first} and {second} of {item}?" if kind == "both" else f"{kind} of {item}?"


class Learner:
    """One run of one arm; `step` samples a batch and updates twice on it."""

    def __init__(self, start: Weights, arm: Arm, seed: int) -> None:
        torch.manual_seed(seed)
        self.arm, self.seed, self.steps_done = arm, seed, 0
        self.weights = {name: value.clone().requires_grad_(True) for name, value in start.items()}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=RATE, weight_decay=0.0)
        self.world = World(seed)
        self.selection = TaskSelection(KINDS, arm.tasks)
        self.bonus = EntropyTarget(target=TARGET, rate=0.005, highest=arm.bonus) if arm.bonus else None

    def step(self) -> dict[str, float]:
        """Train one batch; return its reward, entropy, fraction of groups without a gradient, and what the supports did."""
        self.steps_done += 1
        rng = np.random.default_rng([self.seed, 11, self.steps_done])
        kinds = self.selection.draw(rng, PROMPTS)
        prompts = [prompt_of(kind, self.world, rng, held_out=False) for kind in kinds]
        episodes = self._play([one for one in prompts for _ in range(GENERATIONS)], self.steps_done)
        rewards = self._right(episodes)
        for kind, own in zip(kinds, rewards.reshape(PROMPTS, GENERATIONS), strict=True):
            self.selection.update(kind, float(own.mean()))
        rows = Rows(episodes)
        groups = torch.arange(PROMPTS).repeat_interleave(GENERATIONS)
        advantages = group_advantages(torch.from_numpy(rewards).float(), groups, std=True)
        coefficient = self.bonus.coefficient if self.bonus else 0.0
        entropy, clipped = self._update(rows, advantages, coefficient)
        if self.bonus:
            self.bonus.update(entropy)
        spread = rewards.reshape(PROMPTS, GENERATIONS).std(axis=1)
        return {
            "reward": float(rewards.mean()), "entropy": entropy, "silent_frac": float((spread == 0).mean()),
            "clipped_high_frac": clipped, "bonus": coefficient,
        }  # fmt: skip

    def evaluate(self) -> dict[str, float]:
        """Return the mean reward and entropy of answers to held-out prompts, equally many of each kind."""
        per_kind, answers = EVALUATED
        rng = np.random.default_rng([self.seed, 13])  # the same prompts each time and in each arm
        prompts = [prompt_of(kind, self.world, rng, held_out=True) for kind in KINDS for _ in range(per_kind)]
        episodes = self._play([one for one in prompts for _ in range(answers)], 10_000 + self.steps_done)
        rows, total = Rows(episodes), 0.0
        with torch.no_grad():
            for chosen, width in rows.chunks():
                total += float((self._scores(rows, chosen, width)[1] * rows.own[chosen, :width]).sum())
        return {
            "held_out": float(self._right(episodes).mean()),
            "held_out_entropy": total / float(rows.own.sum()),
        }

    @staticmethod
    def _right(episodes: Sequence[Episode]) -> np.ndarray:
        finals, answers = [e.final for e in episodes], [e.task.answer for e in episodes]
        return np.array(correct_reward(final=finals, answer=answers))

    def _play(self, prompts: list[str], batch: int) -> list[Episode]:
        toolbox = FailingToolbox(self.world, STYLE, self.seed)
        weights = {name: value.detach() for name, value in self.weights.items()}
        return play(weights, prompts, toolbox, batch=batch, seed=self.seed, max_tokens=MAX_TOKENS)

    def _scores(self, rows: Rows, chosen: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of each token (B, T) with gradient, 0 at the first."""
        ids = rows.ids[chosen, :width]
        logp = torch.log_softmax(logits_of(self.weights, ids), dim=-1)[:, :-1]
        first = logp.new_zeros(len(ids), 1)
        return (
            torch.cat([first, logp.gather(-1, ids[:, 1:, None])[..., 0]], 1),
            torch.cat([first, -(logp.exp() * logp).sum(-1)], 1),
        )

    def _update(self, rows: Rows, advantages: Tensor, coefficient: float) -> tuple[float, float]:
        """Make the updates; return the mean entropy before them and the fraction of tokens clipped above in the last."""
        tokens, keep = rows.own.sum(), None
        if self.arm.covariance:
            keep = select_by_covariance(rows.sampled, advantages, rows.own, fraction=self.arm.covariance).keep
        entropies, clipped = [], 0.0
        for _ in range(UPDATES):
            self.optimizer.zero_grad()
            spread, clipped = 0.0, 0.0
            for chosen, width in rows.chunks():
                own = rows.own[chosen, :width]
                logp, entropy = self._scores(rows, chosen, width)
                loss = dapo(
                    logp, rows.sampled[chosen, :width], advantages[chosen], own, num_tokens=tokens, eps_low=EPSILON, eps_high=EPSILON,
                    keep=None if keep is None else keep[chosen, :width],
                )  # fmt: skip
                value = loss.value
                if coefficient:
                    value = (
                        value + entropy_bonus(entropy, own, coefficient=coefficient, denominator=tokens).value
                    )
                value.backward()  # type: ignore[no-untyped-call]
                spread += float((entropy.detach() * own).sum())
                clipped += float(loss.counts["clipped_high"]["all"])
            torch.nn.utils.clip_grad_norm_(list(self.weights.values()), MAX_GRADIENT)
            self.optimizer.step()
            entropies.append(spread / float(tokens))
        return entropies[0], clipped / float(tokens)


def train(start: Weights, arm: str, seed: int, *, steps: int, every: int) -> dict[str, Any]:
    """Train one run; its record: a series a name, and what was read of held-out prompts every so many steps."""
    learner = Learner(start, ARMS[arm], seed)
    series, held_out = [], [{"step": 0, **learner.evaluate()}]
    for number in range(1, steps + 1):
        series.append(learner.step())
        if number % every == 0:
            held_out.append({"step": number, **learner.evaluate()})
    return {
        "arm": arm, "seed": seed, "steps": steps,
        **{name: [float(f"{row[name]:.4g}") for row in series] for name in series[0]},
        "held_out": [{name: float(f"{value:.4g}") for name, value in row.items()} for row in held_out],
    }  # fmt: skip
