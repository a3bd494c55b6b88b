"""Chosen and rejected attempts at the same task, after the same prompt wherever the attempts allow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.traces.export.samples import Message, Sample
from trimtab.traces.export.similar import NEAR, overlap, shingles

__all__ = ["OTHER_SYSTEM", "Pair", "pairs_of"]

OTHER_SYSTEM = "pair of attempts under different system prompts: they are no attempts at one task"


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
    those that began with other words not with `same_prompt`, and otherwise last. What cannot be paired is counted in `left_out`."""
    tasks: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        if sample.score is None:
            left_out["episode without a reward or success"] += 1
        else:
            tasks.setdefault(sample.attempt_at, []).append(sample)
    found: list[Pair] = []
    for attempts in tasks.values():
        made = _task(attempts, per_task, match_length, left_out, same_prompt)
        if not made:
            left_out[
                "episode of a task (or, without one, of a prompt) whose attempts cannot be paired (one attempt, equal scores, other tools or other system prompts)"
            ] += len(attempts)
        found += made
    return found


def _task(
    attempts: list[Sample], per_task: int, match_length: bool, left_out: Counter[str], same_prompt: bool
) -> list[Pair]:
    words = {id(one): shingles(one) for one in attempts}
    possible: list[tuple[Sample, Sample]] = []
    for a in attempts:
        for b in attempts:
            if (a.score or 0.0) > (b.score or 0.0) and a.tools == b.tools:
                if a.system != b.system:
                    left_out[OTHER_SYSTEM] += 1
                elif same_prompt and a.prompt != b.prompt:
                    left_out["pair of attempts that began with other words (--same-prompt)"] += 1
                elif overlap(words[id(a)], words[id(b)]) >= NEAR:
                    left_out["pair of attempts that are nearly the same"] += 1
                else:
                    possible.append((a, b))
    uses: Counter[int] = Counter()
    made: list[Pair] = []
    while possible and len(made) < per_task:
        best = min(
            possible,
            key=lambda p: (
                p[0].prompt != p[1].prompt,
                uses[id(p[0])] + uses[id(p[1])],
                -_gap(p),
                abs(p[0].size - p[1].size) if match_length else 0,
            ),
        )
        possible.remove(best)
        uses.update(map(id, best))
        made.append(_pair(*best))
    left_out["pair beyond the limit a task"] += len(possible)
    return made


def _gap(pair: tuple[Sample, Sample]) -> float:
    return (pair[0].score or 0.0) - (pair[1].score or 0.0)


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
