"""Rollouts with the log-probabilities they were sampled from, one token of every episode a forward pass.

Every episode starts at position 0 and takes one token a pass, whether it comes from the prompt, the policy or a tool. So all episodes stand at the
same position, and no mask is needed. The draws depend on (seed, batch, row, position) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from reproduce.collapse_bank.transformer import Cache, Weights, logits_of
from trimtab.lab.agent_episode import Episode
from trimtab.lab.database import NOTHING
from trimtab.lab.tasks import parse_task
from trimtab.lab.tokenizer import PAD
from trimtab.lab.toolbox import ToolAnswer, Toolbox

__all__ = ["FailingToolbox", "play"]

LIVE_FRACTION = 0.75
"""Finished episodes are dropped from the cache when fewer than this fraction of it still run."""


@dataclass(frozen=True)
class FailingToolbox(Toolbox):
    """A toolbox of which a fraction of calls returns an error instead of a result; which, depends on (seed, step, row, turn)."""

    fail_fraction: float = 0.0

    def fails(self, step: int, row: int, turn: int) -> bool:
        """Return whether this call fails."""
        draw = np.random.default_rng([self.seed, 707, step, row, turn]).random()
        return bool(draw < self.fail_fraction)

    def answer(self, text: str, *, step: int, row: int, turn: int) -> ToolAnswer:
        """Execute one call, or return what a failing tool returns."""
        if self.fails(step, row, turn):
            return ToolAnswer(NOTHING, True)
        return super().answer(text, step=step, row=row, turn=turn)


def play(
    weights: Weights, prompts: Sequence[str], toolbox: Toolbox, *, batch: int, seed: int, max_tokens: int
) -> list[Episode]:
    """Play every prompt to its end; one episode a prompt, in order."""
    episodes = [
        Episode(parse_task(text, toolbox.world), toolbox, batch, row, max_tokens)
        for row, text in enumerate(prompts)
    ]
    starts = [episode.prompt_ids for episode in episodes]
    draws = np.random.default_rng([seed, 303, batch]).random(
        (len(episodes), max(map(len, starts)) + max_tokens)
    )
    with torch.inference_mode():
        _play(weights, episodes, starts, draws)
    return episodes


def _play(weights: Weights, episodes: list[Episode], starts: list[list[int]], draws: np.ndarray) -> None:
    live = list(range(len(episodes)))
    shared = min(map(len, starts))
    cache = Cache.empty(len(live), draws.shape[1] + 1)
    logits = logits_of(weights, torch.tensor([start[:shared] for start in starts]), cache)[:, -1]
    while True:
        position = cache.length
        logp = torch.log_softmax(logits, dim=-1)
        cumulative = logp.exp().cumsum(1)
        target = torch.from_numpy(draws[live, position - 1]).float()[:, None] * cumulative[:, -1:]
        chosen = torch.searchsorted(cumulative, target).clamp(max=logp.shape[1] - 1)
        values = logp.gather(1, chosen)[:, 0].tolist()
        tokens = [
            _next(episodes[row], starts[row], position, token, value)
            for row, token, value in zip(live, chosen[:, 0].tolist(), values, strict=True)
        ]
        running = [index for index, row in enumerate(live) if not episodes[row].stop_reason]
        if not running:
            return
        if len(running) < LIVE_FRACTION * len(live):
            cache.select(torch.tensor(running))
            live, tokens = [live[index] for index in running], [tokens[index] for index in running]
        logits = logits_of(weights, torch.tensor(tokens)[:, None], cache)[:, 0]


def _next(episode: Episode, start: list[int], position: int, token: int, logprob: float) -> int:
    """Return the token an episode has at this position: of its prompt, of a tool result, or the sampled one."""
    if position < len(start):
        return start[position]
    index = position - len(start)
    if index == len(episode.ids) and not episode.stop_reason:
        episode.append(token, logprob)
        episode.read_result()
    return episode.ids[index] if index < len(episode.ids) else PAD
