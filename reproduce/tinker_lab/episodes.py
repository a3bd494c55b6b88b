"""Tool episodes sampled turn by turn through a Tinker sampling client, and the data made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tinker import Datum, ModelInput, SamplingParams, TensorData

from trimtab.lab.agent_episode import Episode
from trimtab.lab.tasks import correct_reward, parse_task
from trimtab.lab.tokenizer import CALL_END, EOS
from trimtab.lab.toolbox import Toolbox

__all__ = ["advantages_of", "datum", "play", "rewards_of", "whole_sequence"]

TURN_TOKENS, MAX_TOKENS, MAX_CALLS = 24, 60, 2


def play(sampler: Any, prompts: Sequence[str], toolbox: Toolbox, *, step: int, seed: int) -> list[Episode]:
    """Play each prompt to its end: all waiting episodes sample a turn at once, then their tools answer."""
    episodes = [
        Episode(parse_task(prompt, toolbox.world), toolbox, step, row, MAX_TOKENS, MAX_CALLS)
        for row, prompt in enumerate(prompts)
    ]
    turn = 0
    while waiting := [episode for episode in episodes if not episode.stop_reason]:
        futures = [
            sampler.sample(
                ModelInput.from_ints(episode.prompt_ids + episode.ids),
                1,
                SamplingParams(
                    max_tokens=TURN_TOKENS,
                    stop=[CALL_END, EOS],
                    temperature=1.0,
                    seed=_seed(seed, step, turn, episode.row),
                ),
            )
            for episode in waiting
        ]
        for episode, future in zip(waiting, futures, strict=True):
            _append(episode, future.result().sequences[0])
        turn += 1
    return episodes


def _append(episode: Episode, sequence: Any) -> None:
    for token, logprob in zip(sequence.tokens, sequence.logprobs, strict=True):
        if not episode.stop_reason:
            episode.append(int(token), float(logprob))
    if not episode.stop_reason and sequence.stop_reason == "length":
        episode.stop_reason = "length"
    episode.read_result()


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def rewards_of(episodes: Sequence[Episode]) -> list[float]:
    """Return 1.0 where the answer is right."""
    return correct_reward(final=[e.final for e in episodes], answer=[e.task.answer for e in episodes])


def advantages_of(rewards: Sequence[float], group: int) -> np.ndarray:
    """Return rewards less their group's mean, as tinker-cookbook's compute_advantages does."""
    table = np.asarray(rewards).reshape(-1, group)
    return np.asarray(table - table.mean(axis=1, keepdims=True)).ravel()


def datum(episode: Episode, advantage: float) -> Datum:
    """Return an episode as tinker-cookbook's trajectory_to_data lays it out: targets one ahead of the input, `mask` with it."""
    prompt = len(episode.prompt_ids)
    tokens = episode.prompt_ids + episode.ids
    mask = np.array([0] * prompt + episode.env_mask, np.float32)
    logprobs = np.array([0.0] * prompt + episode.logprobs, np.float32)
    fields = {
        "target_tokens": np.array(tokens[1:], np.int64),
        "logprobs": logprobs[1:],
        "advantages": np.float32(advantage) * mask[1:],
        "mask": mask[1:],
    }
    inputs = {name: TensorData.from_numpy(values) for name, values in fields.items()}
    return Datum(model_input=ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def whole_sequence(datum: Datum) -> ModelInput:
    """Return a datum's tokens before the shift: its input and its last target."""
    return datum.model_input.append_int(int(datum.loss_fn_inputs["target_tokens"].tolist()[-1]))
