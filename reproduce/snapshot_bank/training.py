"""Train the runs of a seed, with a snapshot and a held-out score of every tenth step: <raw>/<cause>-s<seed>.npz and .json.

The training loop is that of the collapse bank. Snapshots see what a trainer has: the reward that is trained on, the tools as they are.
The held-out score is the true reward of other tasks with tools that work; the advice never sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reproduce.collapse_bank.batches import RunBatches
from reproduce.collapse_bank.events import finished_falling
from reproduce.collapse_bank.loop import MAX_TOKENS, STYLE, Loop
from reproduce.collapse_bank.regimes import FAULTS, HEALTHY, SLOW, Regime, fault_step
from reproduce.collapse_bank.rewards import score
from reproduce.collapse_bank.sampling import FailingToolbox, play
from reproduce.collapse_bank.training import start_weights
from reproduce.collapse_bank.transformer import Weights, token_logprobs
from trimtab.lab.agent_episode import Episode
from trimtab.lab.database import World
from trimtab.lab.probe_bank import probe_bank
from trimtab.lab.ramp import Ramp
from trimtab.lab.tasks import TaskMix

__all__ = ["CAUSES", "EVERY", "JUDGING", "TUNING", "train_seed"]

TUNING, JUDGING = (400, 401), (410, 411, 412)
"""Seeds that the advice was tuned on, and seeds that judge it."""
EVERY = 10
PROMPTS, HELD_OUT_BATCHES, HELD_OUT_ROWS = 48, 6, 96
CAUSES = ("healthy", "shift_fault", "tool_fault", "stale_ramp", "proxy_reward")
STEPS = 150
MIX = Ramp.constant(0.5)
"""Fraction of tool tasks among the fixed prompts and among the held-out tasks."""


def train_seed(raw: Path, seed: int, steps: int = STEPS, causes: Sequence[str] = CAUSES) -> Iterator[str]:
    """Train what is missing of a seed; yields one line a run."""
    raw.mkdir(parents=True, exist_ok=True)
    healthy = replace(HEALTHY, steps=steps)
    onset = min(fault_step(seed), steps // 2)
    trunk = _Run("healthy", seed, Loop(start_weights(), healthy, seed), None)
    faults = [cause for cause in causes if cause in FAULTS and not _file(raw, cause, seed).exists()]
    if faults or ("healthy" in causes and not _file(raw, "healthy", seed).exists()):
        trunk.train(onset - 1)
        for cause in faults:
            yield trunk.branch(cause, replace(healthy, **FAULTS[cause]), onset).finish(raw)
        if "healthy" in causes:
            yield trunk.finish(raw)
    for cause in causes:
        if cause in SLOW and not _file(raw, cause, seed).exists():
            regime = replace(SLOW[cause].collapse, steps=steps)
            yield _Run(cause, seed, Loop(start_weights(), regime, seed), None).finish(raw)


def _file(raw: Path, cause: str, seed: int) -> Path:
    return raw / f"{cause}-s{seed}.json"


class _Run:
    """One run: its loop, its tokens, its snapshots and its held-out scores."""

    def __init__(self, cause: str, seed: int, loop: Loop, onset: int | None) -> None:
        self.cause, self.seed, self.loop = cause, seed, loop
        identity = {
            "cause": cause,
            "role": "collapse",
            "seed": seed,
            "fault_step": onset,
            "regime": asdict(loop.regime),
        }
        self.batches = RunBatches(identity)
        self.snapshots: list[dict[str, Any]] = []

    def train(self, until: int) -> None:
        """Train up to a step; the first call takes the snapshot of the start."""
        if not self.snapshots:
            self.snapshots.append(snapshot(self.loop))
        while self.loop.steps_done < until:
            self.batches.steps.append(self.loop.step())
            if self.loop.steps_done % EVERY == 0:
                self.snapshots.append(snapshot(self.loop))
                if self.cause != "healthy" and finished_falling(self.batches.rewards):
                    break

    def branch(self, cause: str, regime: Regime, onset: int) -> _Run:
        """Return a copy that goes on under a fault."""
        twin = _Run(cause, self.seed, self.loop.branch(regime), onset)
        twin.batches.steps, twin.snapshots = list(self.batches.steps), list(self.snapshots)
        return twin

    def finish(self, raw: Path) -> str:
        """Train to the end and store; the small file last, so that a run without one is trained again."""
        self.train(self.loop.regime.steps)
        path = _file(raw, self.cause, self.seed)
        self.batches.save(path.with_suffix(".npz"))
        half = path.with_suffix(".part")
        half.write_text(json.dumps({"identity": self.batches.identity, "snapshots": self.snapshots}))
        half.replace(path)
        scores = " ".join(f"{row['held_out']['mean']:.2f}" for row in self.snapshots)
        return f"{path.stem}: {len(self.batches.steps)} steps, held-out {scores}"


def snapshot(loop: Loop) -> dict[str, Any]:
    """Return the answers to the fixed prompts, the scored transcripts and the held-out score of the weights as they are."""
    world, regime, draws = World(loop.seed), loop.regime, loop.seed + 20_000
    toolbox = FailingToolbox(world, STYLE, draws, fail_fraction=regime.tool_failures)
    prompts = [TaskMix(world, draws, MIX).prompt(0, row) for row in range(PROMPTS)]
    with torch.no_grad():
        episodes = play(loop.weights, prompts, toolbox, batch=0, seed=draws, max_tokens=MAX_TOKENS)
        bank = probe_bank()
        logprobs, entropy = (
            t.numpy()[bank.loss_mask] for t in token_logprobs(loop.weights, torch.from_numpy(bank.ids))
        )
        held_out = held_out_score(loop.weights, world, loop.seed + 10_000)
    rewards = score(episodes, toolbox, regime)["reward"]
    return {
        "step": loop.steps_done,
        "answers": [_answer(e, float(r)) for e, r in zip(episodes, rewards, strict=True)],
        "logprobs": np.round(logprobs, 4).tolist(),
        "entropy": np.round(entropy, 4).tolist(),
        "held_out": held_out,
    }


def _answer(episode: Episode, reward: float) -> dict[str, Any]:
    return {
        "prompt": episode.task.prompt, "ids": list(episode.ids), "env_mask": list(episode.env_mask), "final": episode.final,
        "stop": episode.stop_reason, "called": list(episode.called), "wanted": len(episode.task.calls), "reward": round(reward, 5),
    }  # fmt: skip


def held_out_score(weights: Weights, world: World, draws: int) -> dict[str, float]:
    """Return mean and standard error of the true reward of held-out tasks, sampled with the same random numbers each time."""
    true_reward = replace(HEALTHY, proxy=0.0)
    values: list[float] = []
    for batch in range(1, HELD_OUT_BATCHES + 1):
        toolbox, tasks = FailingToolbox(world, STYLE, draws), TaskMix(world, draws, MIX)
        prompts = [tasks.prompt(batch, row) for row in range(HELD_OUT_ROWS)]
        episodes = play(weights, prompts, toolbox, batch=batch, seed=draws, max_tokens=MAX_TOKENS)
        values += score(episodes, toolbox, true_reward)["true_reward"].tolist()
    return {
        "mean": round(float(np.mean(values)), 5),
        "se": round(float(np.std(values, ddof=1) / len(values) ** 0.5), 5),
        "n": len(values),
    }
