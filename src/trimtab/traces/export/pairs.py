"""Chosen and rejected attempts at the same task, after the same prompt wherever the attempts allow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.traces.export.pair_filters import ALONE, EQUAL, Rivals
from trimtab.traces.export.samples import Message, Sample


@dataclass(frozen=True)
class Pair:
    """`same_prompt`: both attempts began with `prompt`, word for word; else it is the chosen one's, and the rejected attempt's own
    beginning, at the same task, was left out."""

    chosen: Sample
    rejected: Sample
    prompt: list[Message]
    chosen_messages: list[Message]
    rejected_messages: list[Message]
    same_prompt: bool


def pairs_of(
    samples: Iterable[Sample],
    per_task: int,
    match_length: bool,
    left_out: Counter[str],
    same_prompt: bool = False,
) -> list[Pair]:
    """Up to `per_task` pairs a task (`Sample.attempt_at`), each attempt used as rarely as can be; scores must differ. With
    `match_length` a chosen one takes the rejected ones closest to it in size first. Attempts under different system prompts are never paired,
    those that began with other words not with `same_prompt`, and otherwise last. Every episode in no pair is counted once in
    `left_out`, by what kept it out (`export.rivals`)."""
    tasks: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        if sample.score is None:
            left_out["episode without a reward or success"] += 1
        else:
            tasks.setdefault(sample.attempt_at, []).append(sample)
    found: list[Pair] = []
    for attempts in tasks.values():
        if len({one.score for one in attempts}) > 1:
            found += _task(attempts, per_task, match_length, left_out, same_prompt)
        else:
            left_out[EQUAL if len(attempts) > 1 else ALONE] += len(attempts)
    return found


def _task(
    attempts: list[Sample], per_task: int, match_length: bool, left_out: Counter[str], same_prompt: bool
) -> list[Pair]:
    rivals = Rivals(attempts, same_prompt)
    possible, causes = rivals.count(left_out)
    made = [_pair(attempts[i], attempts[j]) for i, j in rivals.chosen(per_task, match_length)]
    left_out["pair beyond the limit a task"] += possible - len(made)
    left_out.update(why for why, used in zip(causes, rivals.uses.tolist(), strict=True) if not used)
    return made


def _pair(chosen: Sample, rejected: Sample) -> Pair:
    if chosen.prompt != rejected.prompt:
        return Pair(chosen, rejected, chosen.prompt, chosen.completion, rejected.completion, False)
    a, b = chosen.completion, rejected.completion
    shared = 0
    while shared < min(len(a), len(b)) - 1 and a[shared] == b[shared]:
        shared += 1
    while shared and not (a[shared]["role"] == b[shared]["role"] == "assistant"):
        shared -= 1
    return Pair(chosen, rejected, chosen.prompt + a[:shared], a[shared:], b[shared:], True)
