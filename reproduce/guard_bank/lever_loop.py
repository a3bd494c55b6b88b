"""The bank's loop with levers: rate, KL penalty, caps on importance weights, oldest rollout; and with published remedies built in.

`train` is a step without a watch: it scores no reference, probes or update, and costs two thirds of `step`, which returns a whole batch for a watch.
Both train alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from reproduce.collapse_bank.batches import Array
from reproduce.collapse_bank.loop import GENERATIONS, MAX_GRADIENT, Loop, Rows, Sampled
from reproduce.collapse_bank.regimes import Regime
from reproduce.collapse_bank.rewards import advantages, score
from reproduce.collapse_bank.transformer import Weights, token_logprobs
from reproduce.guard_bank.remedies import Remedy
from trimtab.lab.agent_episode import Episode
from trimtab.objectives.corrections import mis
from trimtab.types import Lever

__all__ = ["NEUTRAL", "LeverLoop", "Trained"]

NEUTRAL: dict[Lever, float] = {
    "lr_scale": 1.0,
    "kl_coef": 0.0,
    "token_is_cap": math.inf,
    "sequence_is_cap": math.inf,
    "max_lag": math.inf,
}
"""The levers of this loop, with the values that leave it as it is."""
REDRAWN = 1_000_003
"""Added to the seed of the draws at a restore: the batches that led to trouble are not drawn again."""

BeforeUpdate = Callable[[int, float, float], bool]


@dataclass(frozen=True)
class Trained:
    """What an unwatched step leaves."""

    step: int
    reward: float
    loss: float
    grad_norm: float


@dataclass
class Setup:
    """What is turned and counted in one branch of a run."""

    levers: dict[Lever, float] = field(default_factory=lambda: dict(NEUTRAL))
    remedy: Remedy = field(default_factory=Remedy)
    before_update: BeforeUpdate | None = None
    """Takes step, loss and gradient norm, and returns whether to leave the update out."""
    skipped: int = 0
    dropped: int = 0
    """Batches thrown away because they were older than `max_lag`."""


class LeverLoop(Loop):
    """One training run whose levers can be turned between two steps."""

    def __init__(self, start: Weights, regime: Regime, seed: int) -> None:
        super().__init__(start, regime, seed)
        self.setup, self.watched = Setup(), False

    def branch(self, regime: Regime) -> LeverLoop:
        """Return a copy that goes on under another regime, with every lever as it stands and no remedy."""
        twin = super().branch(regime)
        assert isinstance(twin, LeverLoop)
        twin.setup = Setup(dict(self.setup.levers))
        return twin

    def train(self) -> Trained:
        """Train one step without what only a watch reads."""
        number = self.steps_done + 1
        sampled = self._take()
        rows = Rows(sampled.episodes)
        rewards = score(sampled.episodes, sampled.toolbox, self.regime)
        advantage = torch.from_numpy(advantages(rewards["reward"], GENERATIONS)).float()
        loss, norm, _, _ = self._update(rows, advantage, number)
        self.steps_done = number
        return Trained(number, float(rewards["true_reward"].mean()), loss, norm)

    def evaluate(self, batch: int) -> float:
        """Return the mean true reward of one batch, sampled by the trainer's own weights; trains nothing."""
        sampled = self._sample(batch)
        return float(score(sampled.episodes, sampled.toolbox, self.regime)["true_reward"].mean())

    def restore(self, saved: Loop) -> None:
        """Take over weights and optimizer of a saved copy; rollouts that wait are dropped, and the next batches are drawn anew.

        Steps are counted on. The age of a rollout is counted from the restored weights.
        """
        copy = saved.branch(self.regime)
        self.weights, self.optimizer = copy.weights, copy.optimizer
        self.setup.dropped += len(self._waiting)
        self._waiting = []
        self.draws += REDRAWN

    def _take(self) -> Sampled:
        limit = self.setup.levers["max_lag"]
        fresh = [batch for batch in self._waiting if self.steps_done - batch.version <= limit]
        self.setup.dropped += len(self._waiting) - len(fresh)
        self._waiting = fresh
        while len(self._waiting) <= min(self.regime.lag, limit):
            self._waiting.append(self._sample(self._next_batch))
            self._next_batch += 1
        return self._waiting.pop(0)

    def _scores_at_sampling(self, episodes: Sequence[Episode]) -> Tensor | None:
        return super()._scores_at_sampling(episodes) if self.watched else None

    def _scores_after(self, rows: Rows, wanted: Array) -> Tensor:
        return torch.zeros(rows.ids.shape)  # no watch reads them

    def _update(self, rows: Rows, advantage: Tensor, number: int) -> tuple[float, float, Tensor, Tensor]:
        self.optimizer.zero_grad()
        logprobs, entropy, total = torch.zeros(rows.ids.shape), torch.zeros(rows.ids.shape), 0.0
        for chosen, width in rows.chunks():
            own = rows.own[chosen, :width]
            logp, spread = token_logprobs(self.weights, rows.ids[chosen, :width], self.regime.shifted)
            ratio = (logp.detach() - rows.sampled[chosen, :width]) * own
            weight = own.float() * self._importance(ratio, own)
            per_token = advantage[chosen, None] * logp * weight - self._penalty(rows, chosen, logp)
            loss = -((per_token * own).sum(1) / own.sum(1).clamp(min=1)).sum() / rows.count
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            logprobs[chosen, :width], entropy[chosen, :width] = logp.detach(), spread
        self.setup.remedy.on_gradients(self.optimizer, number)
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.weights.values()), MAX_GRADIENT))
        factor = self.setup.levers["lr_scale"] * self.setup.remedy.rate_factor(
            number, logprobs, rows.sampled, rows.own
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.regime.rate.at(number) * factor
        asked = self.setup.before_update
        if self.setup.remedy.skips(total, norm) or (asked is not None and asked(number, total, norm)):
            self.setup.skipped += 1
        else:
            self.optimizer.step()
        return total, norm, logprobs, entropy

    def _importance(self, ratio: Tensor, own: Tensor) -> Tensor | float:
        """Return the weights of tokens (B, T) from log pi_theta/mu: the remedy's, then what the levers ask for."""
        weight = self.setup.remedy.importance(ratio, own)
        token, sequence = self.setup.levers["token_is_cap"], self.setup.levers["sequence_is_cap"]
        if math.isfinite(token):
            weight = weight * ratio.exp().clamp(max=token)
        if math.isfinite(sequence):
            masked = mis(ratio, own, low=1 / sequence, high=sequence, level="sequence", weigh=False)
            weight = weight * masked.weights
        return weight

    def _penalty(self, rows: Rows, chosen: Tensor, logp: Tensor) -> Tensor | float:
        """Return the KL penalty of each token against the first policy, k3 (B, T)."""
        strength = self.setup.levers["kl_coef"]
        if not strength:
            return 0.0
        with torch.no_grad():
            first, _ = token_logprobs(self.reference, rows.ids[chosen, : logp.shape[1]], self.regime.shifted)
        gap = first - logp
        return strength * (gap.exp() - 1 - gap)


def last_mean(rewards: list[float], count: int) -> float:
    """Return the mean of the last `count` rewards, nan for none."""
    return float(np.mean(rewards[-count:])) if rewards else math.nan
