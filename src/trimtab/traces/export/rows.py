"""Samples to the rows of each kind of training data, and what the card says of their balance."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from trimtab.traces.export.data_card import SAME_PROMPT_ROWS, UNWRITTEN, balance_of, given_by_others
from trimtab.traces.export.near_duplicates import without_copies
from trimtab.traces.export.pairs import Pair, pairs_of
from trimtab.traces.export.samples import Sample

UNSCORED = "rows of episodes without an outcome"
NO_SCORE = "episode without a reward or success"
_OPEN = "rows without `solved`: of an attempt the outcome is unknown"


def rows_of(
    kind: str,
    samples: list[Sample],
    per_task: int,
    match_length: bool,
    same_prompt: bool,
    left_out: Counter[str],
    keep_unscored: bool,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    if kind == "grpo":
        return _prompts(samples)
    fresh, copies = without_copies(samples)
    left_out["near-duplicate of another episode of its task and outcome"] += copies
    if kind == "dpo":
        pairs = pairs_of(fresh, per_task, match_length, left_out, same_prompt)
        return [_dpo(pair) for pair in pairs], balance_of(pairs)
    known = [s for s in fresh if s.score is not None]
    unscored = [s for s in fresh if s.score is None] if keep_unscored and kind == "sft" else []
    left_out[NO_SCORE] += len(fresh) - len(known) - len(unscored)
    if kind == "kto":
        rows = [
            {
                "prompt": s.prompt,
                "completion": s.completion,
                "label": s.score == 1.0,
                "tools": s.tools or None,
                "task": s.task,
                "episode": s.episode,
            }
            for s in known
        ]
        return rows, {
            "desirable": sum(row["label"] for row in rows),
            "undesirable": sum(not row["label"] for row in rows),
            **given_by_others(known),
        }
    solved = [s for s in known if s.score == 1.0]
    left_out["episode that did not solve its task"] += len(known) - len(solved)
    rows = [
        {"messages": s.prompt + s.completion, "tools": s.tools or None, "task": s.task, "episode": s.episode}
        for s in fresh
        if s.score == 1.0 or (s.score is None and unscored)
    ]
    return rows, {**given_by_others([*solved, *unscored]), **({UNSCORED: len(unscored)} if unscored else {})}


def _dpo(pair: Pair) -> dict[str, Any]:
    return {
        "prompt": pair.prompt, "chosen": pair.chosen_messages, "rejected": pair.rejected_messages, "tools": pair.chosen.tools or None,
        "task": pair.chosen.task, "chosen_episode": pair.chosen.episode, "rejected_episode": pair.rejected.episode,
    }  # fmt: skip


def _prompts(samples: list[Sample]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The prompt of whatever is attempted (`Sample.key`, as for pairs) once, its first attempt's, with how many attempts were solved."""
    tasks: dict[Any, list[Sample]] = {}
    for sample in samples:
        tasks.setdefault(sample.key, []).append(sample)
    rows = [
        {
            "prompt": attempts[0].prompt, "tools": attempts[0].tools or None, "task": attempts[0].task, "attempts": len(attempts),
            "solved": sum(s.score == 1.0 for s in attempts) if all(s.score is not None for s in attempts) else None,
        }
        for attempts in tasks.values()
    ]  # fmt: skip
    prompts = Counter(json.dumps(row["prompt"]) for row in rows)
    open_ones = sum(row["solved"] is None for row in rows)
    balance: dict[str, Any] = {_OPEN: open_ones} if open_ones else {}
    other = sum(s.prompt != attempts[0].prompt for attempts in tasks.values() for s in attempts)
    balance |= {UNWRITTEN: other} if other else {}
    return rows, balance | {SAME_PROMPT_ROWS: sum(count for count in prompts.values() if count > 1)}
