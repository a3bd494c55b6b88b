"""Chosen and rejected attempts at the same task, after the same prompt wherever the attempts allow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.traces.export.export_options import ExportOptions
from trimtab.traces.export.pair_filters import ALONE, EQUAL, PairFilters
from trimtab.traces.export.samples import Message, Sample

_PER_TASK = 4


@dataclass(frozen=True)
class Pair:
    """Two attempts at a task. The prompt is the chosen one's; messages that both begin with belong to it."""

    chosen: Sample
    rejected: Sample
    prompt: list[Message]
    chosen_messages: list[Message]
    rejected_messages: list[Message]
    same_prompt: bool
    """Both attempts began with `prompt`, word for word.

    Else the beginning of the rejected one is left out.
    """


def pairs_of(samples: Iterable[Sample], options: ExportOptions, left_out: Counter[str]) -> list[Pair]:
    """Return up to `per_task` pairs of a task (`Sample.attempt_at`), each attempt used as rarely as possible.

    Scores must differ. With `match_length` a chosen attempt takes the rejected ones closest in size first.
    Attempts under different system prompts are never paired. Those that began with other words are paired
    last, with `same_prompt` not at all. Every episode in no pair is counted once in `left_out`, by what
    prevented it (`PairFilters`).
    """
    tasks: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        if sample.score is None:
            left_out["episode without a reward or success"] += 1
        else:
            tasks.setdefault(sample.attempt_at, []).append(sample)
    pairs: list[Pair] = []
    for attempts in tasks.values():
        if len({one.score for one in attempts}) > 1:
            pairs += _pairs_of_task(attempts, options, left_out)
        else:
            left_out[EQUAL if len(attempts) > 1 else ALONE] += len(attempts)
    return pairs


def _pairs_of_task(attempts: list[Sample], options: ExportOptions, left_out: Counter[str]) -> list[Pair]:
    filters = PairFilters(attempts, options.same_prompt)
    num_possible, causes = filters.count(left_out)
    chosen = filters.chosen(options.per_task or _PER_TASK, options.match_length)
    pairs = [_pair(attempts[i], attempts[j]) for i, j in chosen]
    left_out["pair beyond the limit a task"] += num_possible - len(pairs)
    left_out.update(why for why, used in zip(causes, filters.uses.tolist(), strict=True) if not used)
    return pairs


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
