"""Batched multi-turn rollouts by the model itself, with the log-probabilities it really sampled from.

Shapes: B sequences (left-padded), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from trimtab.lab.agent_episode import Episode
from trimtab.lab.tasks import parse_task
from trimtab.lab.tokenizer import PAD
from trimtab.lab.toolbox import Toolbox

RolloutFunc = Callable[[list[str], Any], dict[str, Any]]


@dataclass(frozen=True)
class Limits:
    """Bounds of one episode and the sampling temperature; without top-p, so that log-probabilities are true
    ones.
    """

    max_tokens: int = 160
    max_calls: int = 3
    temperature: float = 1.0


def rollout(
    model: PreTrainedModel,
    prompts: Sequence[str],
    toolbox: Toolbox,
    *,
    step: int = 0,
    seed: int = 0,
    limits: Limits | None = None,
) -> list[Episode]:
    """Play every prompt to its end; one episode a prompt, in order. Deterministic given weights, seed and
    step.
    """
    limits = limits or Limits()
    episodes = [
        Episode(parse_task(text, toolbox.world), toolbox, step, row, limits.max_tokens, limits.max_calls)
        for row, text in enumerate(prompts)
    ]
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    with torch.inference_mode():
        while live := [episode for episode in episodes if not episode.stop_reason]:
            _turn(model, live, generator, limits.temperature)
            for episode in live:
                episode.read_result()
    return episodes


def _turn(
    model: PreTrainedModel, episodes: list[Episode], generator: torch.Generator, temperature: float
) -> None:
    """Let every episode write until it ends or waits for a tool: one prefill, then a token at a time."""
    ids, mask = _contexts(episodes)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache()
    while episodes:
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        )
        logp = torch.log_softmax(out.logits[:, -1].float() / temperature, dim=-1)  # (B, V)
        ids = torch.multinomial(logp.exp(), 1, generator=generator)  # (B, 1)
        for episode, token, value in zip(
            episodes, ids[:, 0].tolist(), logp.gather(1, ids)[:, 0].tolist(), strict=True
        ):
            episode.append(token, value)
        positions = positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(episodes), 1)], dim=1)
        keep = [row for row, e in enumerate(episodes) if not (e.stop_reason or e.forced)]
        if len(keep) < len(episodes):
            rows = torch.tensor(keep, dtype=torch.long)
            ids, positions, mask = ids[rows], positions[rows], mask[rows]
            cache.batch_select_indices(rows)
            episodes = [episodes[row] for row in keep]


def _contexts(episodes: list[Episode]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [episode.prompt_ids + episode.ids for episode in episodes]
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def to_trl(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Episodes as TRL's `rollout_func` result: the three required keys, `env_mask`, and one extra per reward
    input.
    """
    return {
        "prompt_ids": [e.prompt_ids for e in episodes],
        "completion_ids": [e.ids for e in episodes],
        "logprobs": [e.logprobs for e in episodes],
        "env_mask": [e.env_mask for e in episodes],
        "tool_index": [e.tool_index for e in episodes],
        "kind": [e.task.kind for e in episodes],
        "answer": [e.task.answer for e in episodes],
        "final": [e.final for e in episodes],
        "called": [e.called for e in episodes],
        "num_calls": [len(e.called) for e in episodes],
        "want_calls": [len(e.task.calls) for e in episodes],
        "num_turns": [len(e.called) + 1 for e in episodes],
        "stop_reason": [e.stop_reason for e in episodes],
        "episode_valid": [e.valid for e in episodes],
    }


def make_rollout_func(toolbox: Toolbox, *, seed: int = 0, limits: Limits | None = None) -> RolloutFunc:
    """A `rollout_func` for GRPOTrainer: plays the prompts with the trainer's model at the trainer's global
    step.

    `limits.temperature` must equal `GRPOConfig.temperature`, or the log-probabilities follow another
    convention than the trainer's.
    """

    def rollout_func(prompts: list[str], trainer: Any) -> dict[str, Any]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        step = int(trainer.state.global_step)
        return to_trl(rollout(model, prompts, toolbox, step=step, seed=seed, limits=limits))

    return rollout_func
