"""A lean RL loop over the lab agent: sample, score, one update a step; GRPO's advantages, no importance weights.

A loop can be copied at any step, weights, optimiser and waiting batches alike. What follows depends on the regime alone, so a copy without a
change goes on as the original does.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from reproduce.collapse_bank.batches import KINDS, STOPS, Array, StepBatch
from reproduce.collapse_bank.regimes import Regime
from reproduce.collapse_bank.rewards import advantages, score
from reproduce.collapse_bank.sampling import FailingToolbox, play
from reproduce.collapse_bank.transformer import Weights, quantise, token_logprobs
from trimtab.lab.agent_episode import Episode
from trimtab.lab.database import World
from trimtab.lab.probe_bank import ProbeBank, probe_bank
from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix
from trimtab.lab.tokenizer import PAD
from trimtab.lab.tool_output import OutputStyle

__all__ = ["Loop"]

PROMPTS, GENERATIONS, MAX_TOKENS = 6, 8, 40
STYLE = OutputStyle(open=True, length=Ramp.constant(4), rare=Ramp.constant(0.3))
MAX_GRADIENT = 1.0
CHUNK = 16  # sequences of one pass, of similar length
PROBE_EVERY = 5


@dataclass(frozen=True, eq=False)
class Sampled:
    """A batch that waits to be trained on."""

    episodes: list[Episode]
    toolbox: FailingToolbox
    version: int
    old: Tensor | None
    """The trainer's scores when it was sampled; None where the sampler was the trainer itself."""


class Loop:
    """One training run; `step` trains once and returns what it trained on."""

    def __init__(self, start: Weights, regime: Regime, seed: int) -> None:
        torch.manual_seed(seed)
        self.regime, self.seed, self.steps_done, self._next_batch = regime, seed, 0, 1
        self.draws = seed
        """Seed of prompts, sampling and tool noise; the world of the tasks stays that of `seed`."""
        self.reference = start
        self.weights = {name: value.clone().requires_grad_(True) for name, value in start.items()}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=1.0, weight_decay=0.0)
        self._waiting: list[Sampled] = []
        self._frozen: Weights | None = None
        self._world, self._probes = World(seed), probe_bank()

    def branch(self, regime: Regime) -> Loop:
        """Return a copy that goes on under another regime; batches that wait are kept."""
        twin = copy.copy(self)
        twin.regime = regime
        twin.weights = {
            name: value.detach().clone().requires_grad_(True) for name, value in self.weights.items()
        }
        twin.optimizer = torch.optim.AdamW(twin.weights.values(), lr=1.0, weight_decay=0.0)
        twin.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        twin._waiting = list(self._waiting)
        twin._frozen = quantise(self.weights, 0) if regime.frozen and self._frozen is None else self._frozen
        return twin

    def step(self) -> StepBatch:
        """Train one step on the oldest batch that waits."""
        start, number = time.process_time(), self.steps_done + 1
        sampled = self._take()
        rows = Rows(sampled.episodes)
        rewards = score(sampled.episodes, sampled.toolbox, self.regime)
        advantage = advantages(rewards["reward"], GENERATIONS)
        scored = np.arange(rows.count) % 2 == number % 2
        probes = self._probe() if number % PROBE_EVERY == 1 else None
        loss, grad_norm, logprobs, entropy = self._update(rows, torch.from_numpy(advantage).float(), number)
        numbers = {"step": number, "rate": self.regime.rate.at(number), "loss": loss, "grad_norm": grad_norm}
        columns = {
            "rollout_logprobs": rows.sampled,
            "old_logprobs": rows.sampled if sampled.old is None else sampled.old,
            "logprobs": logprobs,
            "ref_logprobs": self._scores(rows, self.reference, scored),
            "next_logprobs": self._scores_after(rows, scored),
            "entropy": entropy,
        }
        self.steps_done = number
        return StepBatch(
            tokens={
                "token_ids": rows.packed(rows.ids),
                "own": rows.packed(rows.own),
                **{name: rows.packed(values) for name, values in columns.items()},
            },
            sequences={
                **rows.labels(),
                **rewards,
                "advantage": advantage,
                "scored": scored,
                "version": np.full(rows.count, sampled.version),
            },
            numbers={**numbers, "cpu_seconds": time.process_time() - start},
            calls=rows.calls(),
            failed=rows.failed(sampled.toolbox),
            probe_logprobs=probes,
        )

    def _take(self) -> Sampled:
        """Sample until as many batches wait as the lag asks for, and return the oldest."""
        while len(self._waiting) <= self.regime.lag:
            self._waiting.append(self._sample(self._next_batch))
            self._next_batch += 1
        return self._waiting.pop(0)

    def _sample(self, batch: int) -> Sampled:
        """Play one batch with the sampler's weights of now; its prompts and draws depend on its number alone."""
        toolbox = FailingToolbox(self._world, STYLE, self.draws, fail_fraction=self.regime.tool_failures)
        tasks = TaskMix(self._world, self.draws, self.regime.alpha)
        prompts = [
            p for p in (tasks.prompt(batch, row) for row in range(PROMPTS)) for _ in range(GENERATIONS)
        ]
        weights = self._frozen or quantise(self.weights, self.regime.bits)
        episodes = play(weights, prompts, toolbox, batch=batch, seed=self.draws, max_tokens=MAX_TOKENS)
        return Sampled(episodes, toolbox, self.steps_done, self._scores_at_sampling(episodes))

    def _scores_at_sampling(self, episodes: Sequence[Episode]) -> Tensor | None:
        """Return the trainer's own log-probabilities of what was sampled; None where the sampler is the trainer."""
        same = self._frozen is None and not self.regime.bits and not self.regime.shifted
        return None if same else self._scores(Rows(episodes), self.weights)

    def _scores_after(self, rows: Rows, wanted: Array) -> Tensor:
        """Return log-probabilities after the update, of the wanted sequences."""
        return self._scores(rows, self.weights, wanted)

    def _update(self, rows: Rows, advantage: Tensor, number: int) -> tuple[float, float, Tensor, Tensor]:
        """Make one optimiser step; return loss, gradient norm, and log-probabilities and entropy before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.regime.rate.at(number)
        self.optimizer.zero_grad()
        logprobs, entropy, total = torch.zeros(rows.ids.shape), torch.zeros(rows.ids.shape), 0.0
        for chosen, width in rows.chunks():
            own = rows.own[chosen, :width].float()
            logp, spread = token_logprobs(self.weights, rows.ids[chosen, :width], self.regime.shifted)
            gain = (advantage[chosen, None] * logp * own).sum(1) / own.sum(1).clamp(min=1)
            loss = -gain.sum() / rows.count
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            logprobs[chosen, :width], entropy[chosen, :width] = logp.detach(), spread
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.weights.values()), MAX_GRADIENT))
        self.optimizer.step()
        return total, norm, logprobs, entropy

    @torch.no_grad()
    def _scores(self, rows: Rows, weights: Weights, wanted: Array | None = None) -> Tensor:
        """Return log-probabilities of the wanted sequences, 0 elsewhere, (B, T)."""
        result = torch.zeros(rows.ids.shape)
        for chosen, width in rows.chunks(wanted):
            result[chosen, :width] = token_logprobs(weights, rows.ids[chosen, :width], self.regime.shifted)[0]
        return result

    @torch.no_grad()
    def _probe(self) -> Array:
        bank: ProbeBank = self._probes
        logp, _ = token_logprobs(self.weights, torch.from_numpy(bank.ids))
        return np.asarray(logp.numpy()[bank.loss_mask])


class Rows:
    """Episodes as right-padded tensors (B, T), the prompt included; packed columns leave prompt and padding out."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.episodes, self.count = episodes, len(episodes)
        prompts = [e.prompt_ids for e in episodes]
        self.lengths = torch.tensor([len(p) + len(e.ids) for p, e in zip(prompts, episodes, strict=True)])
        shape = (self.count, int(self.lengths.max()))
        self.ids = torch.full(shape, PAD)
        self.own, self.inside = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        self.sampled = torch.zeros(shape)
        for row, (prompt, e) in enumerate(zip(prompts, episodes, strict=True)):
            first, last = len(prompt), int(self.lengths[row])
            self.ids[row, :last] = torch.tensor(prompt + e.ids)
            self.own[row, first:last] = torch.tensor(e.env_mask, dtype=torch.bool)
            self.sampled[row, first:last] = torch.tensor(e.logprobs)
            self.inside[row, first:last] = True

    def chunks(self, wanted: Array | None = None) -> list[tuple[Tensor, int]]:
        """Return rows of similar length and the width each chunk needs."""
        order = torch.argsort(self.lengths, stable=True)
        if wanted is not None:
            order = order[torch.from_numpy(wanted)[order]]
        return [(rows, int(self.lengths[rows].max())) for rows in order.split(CHUNK)]

    def packed(self, values: Tensor) -> Array:
        """Return the values at the episodes' tokens, one episode after the other."""
        return np.asarray(values[self.inside].numpy())

    def labels(self) -> dict[str, Array]:
        """Return what every episode is."""
        return {
            "token_counts": np.array([len(e.ids) for e in self.episodes]),
            "group": np.arange(self.count) // GENERATIONS,
            "kind": np.array([KINDS.index(e.task.kind) for e in self.episodes]),
            "stop": np.array([STOPS.index(e.stop_reason) for e in self.episodes]),
            "call_counts": np.array([len(e.called) for e in self.episodes]),
        }

    def calls(self) -> Array:
        """Return the number of every called tool, 1 and up as in `Toolbox.index`."""
        return np.array([e.toolbox.index(text) for e in self.episodes for text in e.called], np.uint8)

    def failed(self, toolbox: FailingToolbox) -> Array:
        """Return whether each call failed, in the order of `calls`."""
        fails = [
            toolbox.fails(e.step, e.row, turn) for e in self.episodes for turn in range(1, len(e.called) + 1)
        ]
        return np.array(fails, bool)
