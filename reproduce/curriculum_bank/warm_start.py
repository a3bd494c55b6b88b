"""The agent that all runs start from: the shipped one, taught a little of every family by supervised learning.

The shipped agent has seen words of four letters alone: it solves a family nearly always soon, or never. After this it solves most
families now and then, the harder the rarer, as a base model does before RL.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from reproduce.collapse_bank.loop import STYLE, Rows
from reproduce.collapse_bank.transformer import Weights, load_weights, token_logprobs
from reproduce.curriculum_bank.task_pool import TAUGHT, drawer
from trimtab.lab.agent_episode import Corruption, Episode, script
from trimtab.lab.database import World
from trimtab.lab.tasks import parse_task
from trimtab.lab.toolbox import Toolbox

__all__ = ["warm_start"]

SEED, STEPS, BATCH, RATE = 7, 60, 64, 1e-3
MAX_TOKENS = 60


def warm_start(path: Path, steps: int = STEPS) -> Weights:
    """Return the weights, from `path` where they are there already."""
    if path.exists():
        loaded: Weights = torch.load(path, weights_only=True)
        return loaded
    torch.manual_seed(SEED)
    weights = {name: value.requires_grad_(True) for name, value in load_weights().items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=0.0)
    world, rng = World(SEED), np.random.default_rng([SEED, 611])
    draw = [drawer(family, world, rng) for family in TAUGHT]
    toolbox = Toolbox(world, STYLE, SEED)
    for step in range(steps):
        episodes = []
        for row in range(BATCH):
            prompt = draw[int(rng.integers(len(draw)))]()
            episode = Episode(parse_task(prompt, world), toolbox, step, row, MAX_TOKENS)
            episodes.append(script(episode, rng, Corruption(wrong=0.3)))
        rows = Rows(episodes)
        optimizer.zero_grad()
        for chosen, width in rows.chunks():
            own = rows.own[chosen, :width].float()
            logp, _ = token_logprobs(weights, rows.ids[chosen, :width])
            (-(logp * own).sum() / rows.own.sum()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
    frozen = {name: value.detach() for name, value in weights.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(frozen, path)
    return frozen
