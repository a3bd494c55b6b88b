"""Greedy answers and transcript scores of a transformers model that leave its training undisturbed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from trimtab.adapters.snapshots.fixed_transcripts import FixedTranscript
from trimtab.objectives.weights.weight_shards import drop_gathered
from trimtab.snapshots import Answer, TranscriptScores
from trimtab.snapshots.snapshot_taking import same_random_numbers

_CHUNK = 256  # positions whose distributions are in memory at once


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Let a block use a model in the middle of training, and put everything back.

    Random numbers of torch (CPU and every CUDA device), numpy and Python, the training flag of each
    submodule, and gradients are as before; so training goes on bit for bit as it would have.

    Args:
        model: The policy.

    Returns:
        A context.

    Example:
        >>> layer = torch.nn.Dropout(0.5)
        >>> with undisturbed(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    flags = [(child, child.training) for child in model.modules()]
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    model.eval()
    try:
        with torch.random.fork_rng(devices=devices), same_random_numbers(), torch.no_grad():
            yield
    finally:
        for child, flag in flags:
            child.training = flag
        drop_gathered(model)


def model_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int = 128,
    batch_size: int = 8,
) -> tuple[list[Answer], list[list[int]]]:
    """Let a model answer prompts greedily.

    Args:
        model: A transformers causal model; call it inside `undisturbed`.
        tokenizer: Its tokenizer.
        prompts: Token ids of each prompt.
        max_new_tokens: Longest answer, in tokens.
        batch_size: Prompts of one call of `generate`.

    Returns:
        One answer a prompt, its text without special tokens but for those that a template marks calls with,
        and the
            token ids of each answer, its end token included.

    Example:
        >>> model_answers(model, tokenizer, [tokenizer("2+2=")["input_ids"]])  # doctest: +SKIP
    """
    settings = _greedy(model, tokenizer, max_new_tokens)
    ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    answers: list[Answer] = []
    written: list[list[int]] = []
    for start in range(0, len(prompts), batch_size):
        rows = [list(row) for row in prompts[start : start + batch_size]]
        width = max(map(len, rows))
        pad = settings.pad_token_id
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
        for new in out[:, width:].tolist():
            end = next((i for i, token in enumerate(new) if token in ends), None)
            own = new if end is None else new[: end + 1]
            words = own if end is None else own[:-1]
            text = tokenizer.decode(words, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            answers.append(Answer(text, len(own), "length" if end is None else "eos"))
            written.append(own)
    return answers, written


def score_transcripts(
    model: Any, transcripts: Sequence[FixedTranscript], *, name: str = "", batch_size: int = 4
) -> TranscriptScores:
    """Score the agent's own tokens of fixed transcripts, without temperature.

    Args:
        model: A transformers causal model; call it inside `undisturbed`.
        transcripts: At least one, each with at least two tokens.
        name: Which transcripts these are.
        batch_size: Transcripts of one forward pass.

    Returns:
        Log-probability and entropy of every own token, in nats.

    Example:
        >>> fixed = [FixedTranscript((1, 2, 3), (False, True, True), (False, False, True))]
        >>> score_transcripts(model, fixed)  # doctest: +SKIP
    """
    logprobs: list[Any] = []
    entropies: list[Any] = []
    for start in range(0, len(transcripts), batch_size):
        rows = transcripts[start : start + batch_size]
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows], device=model.device)
        mask = torch.tensor(
            [[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows], device=model.device
        )
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        for i, row in enumerate(rows):
            logp, entropy = _of_row(logits[i, : len(row.ids) - 1], ids[i, 1 : len(row.ids)])
            own = np.array(row.own[1:], np.bool_)
            logprobs.append(logp[own])
            entropies.append(entropy[own])
    lengths = np.array([len(values) for values in logprobs], np.int64)
    post = [np.array(row.post_tool[1:], np.bool_)[np.array(row.own[1:], np.bool_)] for row in transcripts]
    return TranscriptScores(
        lengths, np.concatenate(logprobs), np.concatenate(post), np.concatenate(entropies), name
    )


def _of_row(logits: torch.Tensor, targets: torch.Tensor) -> tuple[Any, Any]:
    """Log-probabilities (T,) of the targets and entropies (T,) of logits (T, V), some positions at a time."""
    values, spreads = [], []
    for part, target in zip(logits.split(_CHUNK), targets.split(_CHUNK), strict=True):
        logp = torch.log_softmax(part.float(), dim=-1)
        values.append(logp.gather(-1, target[:, None])[:, 0])
        spreads.append(torch.special.entr(logp.exp()).sum(-1))
    return tuple(torch.cat(one).double().cpu().numpy() for one in (values, spreads))  # type: ignore[return-value]


def _greedy(model: Any, tokenizer: Any, max_new_tokens: int) -> GenerationConfig:
    """Settings of their own: the model's sampling settings, and what a trainer changed in them, do not
    matter."""
    eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    eos = tokenizer.eos_token_id if eos is None else eos
    pad = tokenizer.pad_token_id
    if pad is None:
        pad = eos[0] if isinstance(eos, list) else eos
    return GenerationConfig(
        do_sample=False,
        use_cache=True,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos,
        pad_token_id=0 if pad is None else pad,
    )
