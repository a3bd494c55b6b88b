"""Samples to the rows of each kind of training data, and the balance on the card."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from trimtab.traces.export.data_card import SAME_PROMPT_ROWS, UNWRITTEN, balance_of, message_counts
from trimtab.traces.export.export_options import ExportOptions
from trimtab.traces.export.near_duplicates import without_near_duplicates
from trimtab.traces.export.pairs import Pair, pairs_of
from trimtab.traces.export.samples import Sample

UNSCORED = "rows of episodes without an outcome"
NO_SCORE = "episode without a reward or success"
_OPEN = "rows without `solved`: of an attempt the outcome is unknown"
_Rows = tuple[list[dict[str, Any]], dict[str, Any]]


def rows_of(kind: str, samples: list[Sample], options: ExportOptions, left_out: Counter[str]) -> _Rows:
    """Return rows and balance of a kind other than steps. What is left out is counted in `left_out`."""
    if kind == "grpo":
        return _prompts(samples)
    fresh, num_duplicates = without_near_duplicates(samples)
    left_out["near-duplicate of another episode of its task and outcome"] += num_duplicates
    if kind == "dpo":
        pairs = pairs_of(fresh, options, left_out)
        return [_dpo(pair) for pair in pairs], balance_of(pairs)
    known = [s for s in fresh if s.score is not None]
    num_unscored = len(fresh) - len(known) if options.keep_unscored and kind == "sft" else 0
    left_out[NO_SCORE] += len(fresh) - len(known) - num_unscored
    if kind == "kto":
        parts = [{"prompt": s.prompt, "completion": s.completion, "label": s.score == 1.0} for s in known]
        rows = [{**part, **_columns(s)} for part, s in zip(parts, known, strict=True)]
        desirable = sum(row["label"] for row in rows)
        counts = {"desirable": desirable, "undesirable": len(rows) - desirable}
        return rows, {**counts, **message_counts(known)}
    solved = [s for s in fresh if s.score == 1.0 or (s.score is None and num_unscored)]
    left_out["episode that did not solve its task"] += len(known) - len(solved) + num_unscored
    rows = [{"messages": s.prompt + s.completion, **_columns(s)} for s in solved]
    return rows, {**message_counts(solved), **({UNSCORED: num_unscored} if num_unscored else {})}


def _columns(sample: Sample) -> dict[str, Any]:
    return {"tools": sample.tools or None, "task": sample.task, "episode": sample.episode}


def _dpo(pair: Pair) -> dict[str, Any]:
    return {
        "prompt": pair.prompt,
        "chosen": pair.chosen_messages,
        "rejected": pair.rejected_messages,
        "tools": pair.chosen.tools or None,
        "task": pair.chosen.task,
        "chosen_episode": pair.chosen.episode,
        "rejected_episode": pair.rejected.episode,
    }


def _prompts(samples: list[Sample]) -> _Rows:
    """Return the prompt of the first attempt of each `Sample.key`, with how many attempts were solved."""
    tasks: dict[Any, list[Sample]] = {}
    for sample in samples:
        tasks.setdefault(sample.key, []).append(sample)
    rows = []
    for attempts in tasks.values():
        first, known = attempts[0], all(s.score is not None for s in attempts)
        solved = sum(s.score == 1.0 for s in attempts) if known else None
        columns = {"prompt": first.prompt, "tools": first.tools or None, "task": first.task}
        rows.append({**columns, "attempts": len(attempts), "solved": solved})
    prompts = Counter(json.dumps(row["prompt"]) for row in rows)
    num_open = sum(row["solved"] is None for row in rows)
    other = sum(s.prompt != attempts[0].prompt for attempts in tasks.values() for s in attempts)
    balance = {name: count for name, count in ((_OPEN, num_open), (UNWRITTEN, other)) if count}
    return rows, balance | {SAME_PROMPT_ROWS: sum(count for count in prompts.values() if count > 1)}
