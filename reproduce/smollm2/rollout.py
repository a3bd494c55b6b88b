"""Batched rollouts with a tool turn and the log-probabilities really sampled from, in TRL's `rollout_func` contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from reproduce.smollm2.world import CALL, Outputs, Task, answered, run_call
from trimtab.lab.database import World

__all__ = ["Episode", "play", "prompt_ids", "reward"]

TURN_TOKENS, MAX_CALLS, MAX_TOKENS = 28, 2, 220


@dataclass
class Episode:
    """One completion as it is written."""

    task: Task
    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    done: bool = False


def prompt_ids(tokenizer: Any, system: str, question: str) -> list[int]:
    """The chat up to where the assistant begins."""
    chat = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@torch.no_grad()
def play(
    model: Any, tokenizer: Any, tasks: Sequence[Task], prompts: Sequence[list[int]], world: World, outputs: Outputs,
    *, step: int, seed: int,
) -> list[Episode]:  # fmt: skip
    """Play every task to its end. Deterministic given weights, step and seed."""
    rng = np.random.default_rng([seed, 909, step])
    draw = torch.Generator(device=model.device).manual_seed(seed * 1_000_003 + step)
    episodes = [Episode(task, list(prompt)) for task, prompt in zip(tasks, prompts, strict=True)]
    while live := [e for e in episodes if not e.done]:
        _turn(model, tokenizer, live, draw)
        for e in live:
            _after_turn(tokenizer, e, world, outputs, step, rng)
    return episodes


def _turn(model: Any, tokenizer: Any, live: list[Episode], draw: torch.Generator) -> None:
    rows = [e.prompt + e.ids for e in live]
    width, device = max(map(len, rows)), model.device
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(r)) + r for r in rows], device=device)
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows], device=device)
    cache, writing = DynamicCache(), [True] * len(live)
    for e in live:
        e.turn = []
    for _ in range(TURN_TOKENS):
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.size(1) :]
        out = model(
            input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=cache, logits_to_keep=1
        )
        table = torch.log_softmax(out.logits[:, -1].float(), dim=-1)
        ids = torch.multinomial(table.exp(), 1, generator=draw)
        chosen = table.gather(1, ids)[:, 0].tolist()
        for i, e in enumerate(live):
            if writing[i]:
                token = int(ids[i, 0])
                e.ids.append(token)
                e.turn.append(token)
                e.logprobs.append(chosen[i])
                e.own.append(1)
                ended = token == tokenizer.eos_token_id
                writing[i] = not (ended or "</call>" in tokenizer.decode(e.turn))
        if not any(writing):
            return
        mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)


def _after_turn(
    tokenizer: Any, e: Episode, world: World, outputs: Outputs, step: int, rng: np.random.Generator
) -> None:
    """Run the call the turn ended with, or end the episode."""
    found = CALL.search(tokenizer.decode(e.turn))
    if found is None or len(e.called) >= MAX_CALLS or len(e.ids) >= MAX_TOKENS:
        e.done = True
        return
    value, _ = run_call(world, found[1])
    text = f"\n<result>{outputs.render(value, step, rng)}</result>\n"
    told = tokenizer(text, add_special_tokens=False)["input_ids"]
    e.called.append(found[1].split(" ")[0])
    e.ids += told
    e.logprobs += [0.0] * len(told)
    e.own += [0] * len(told)


def reward(tokenizer: Any, e: Episode) -> float:
    """1 for the true answer, a tenth for an episode with as many calls as needed."""
    right = answered(tokenizer.decode(e.ids, skip_special_tokens=True), e.task.answer)
    return 0.9 * right + 0.1 * (len(e.called) == (1 if e.task.call else 0))
