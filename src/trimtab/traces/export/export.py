"""Logs to a training set and its data card: SFT, DPO, KTO, GRPO prompts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import TraceError
from trimtab.traces.episode import Episode
from trimtab.traces.export.card import (
    SAME_PROMPT_ROWS,
    balance_of,
    card_of,
    given_by_others,
    mixed_warnings,
    opening_warnings,
    prompt_warnings,
)
from trimtab.traces.export.images import image_warnings, take_digests_off
from trimtab.traces.export.pairs import Pair, pairs_of
from trimtab.traces.export.samples import Sample, sample_of
from trimtab.traces.export.similar import without_copies
from trimtab.traces.export.steps import step_rows
from trimtab.traces.export.tokens import add_tokens
from trimtab.traces.export.tools import give_tools, read_tools, tool_warnings
from trimtab.traces.export.write import card_text, write_rows
from trimtab.traces.files import STDIN, spare_logs
from trimtab.traces.read import read_episodes
from trimtab.traces.table import BOTH, must_be_finite
from trimtab.traces.wording import counted

__all__ = ["KINDS", "Export", "export"]

UNSCORED = "rows of episodes without an outcome"
_NO_SCORE = "episode without a reward or success"
_NO_THRESHOLD = (
    "episode of which nothing says whether it is solved: rewards are not only 0 and 1, give --solved-at"
)
_OPEN = "rows without `solved`: of an attempt the outcome is unknown"
_PER_TASK = 4
KINDS = ("sft", "dpo", "kto", "grpo", "steps")
_OF_KINDS = {
    "per_task": ("dpo",),
    "match_length": ("dpo",),
    "same_prompt": ("dpo",),
    "keep_tool_faults": ("sft", "dpo", "kto"),
    "keep_unscored": ("sft",),
}
"""Options, and the kinds of which they change anything."""


@dataclass(frozen=True)
class Export:
    """`card` is what the data card says, as JSON types; it lies beside the data as `<output>.card.md` and `.card.json`."""

    rows: list[dict[str, Any]]
    card: dict[str, Any]


def export(
    paths: Iterable[str | Path],
    kind: str,
    output: str | Path,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    solved_at: float | None = None,
    per_task: int | None = None,
    match_length: bool = False,
    keep_tool_faults: bool = False,
    progress: Callable[[int], None] | None = None,
    error_patterns: Iterable[str] = (),
    same_prompt: bool = False,
    tools: str | Path | None = None,
    strict: bool = False,
    keep_unscored: bool = False,
) -> Export:
    """Write the logs' episodes as training data of a `kind` of `KINDS` to a .parquet or .jsonl file, or to a folder of `datasets`
    where the output has no suffix, in TRL's conversational form.

    sft: `messages` of solved episodes. dpo: `prompt`, `chosen`, `rejected` of attempts at the same task. kto: `prompt`,
    `completion`, `label`. grpo: `prompt`, `task`, `attempts`, `solved`, of each task once. steps: `prompt`, `completions`,
    `labels` (`export.steps`). All with the `tools` the log has, or those of the JSON file `tools` where it has none. Solved is
    the log's success, a reward of `solved_at`, or a reward of 1 where all are 0 or 1; dpo also ranks other rewards, makes up to `per_task` pairs (4) of a task, and with `same_prompt` pairs only
    attempts that began with the same words. A failed episode in
    which a tool was at fault teaches nothing about the policy and is left out unless `keep_tool_faults`; with
    `keep_unscored`, sft has those of which no outcome is known, too. TraceError when nothing is left, and
    with `strict` at the first malformed line, and for an option that the kind does not have; then no file is touched.
    """
    if kind not in KINDS:
        raise TraceError(f"unknown kind {kind!r} of training data; one of {', '.join(KINDS)}")
    switches = (per_task, match_length, same_prompt, keep_tool_faults, keep_unscored)
    _must_matter(kind, [name for name, one in zip(_OF_KINDS, switches, strict=True) if one])
    names = list(map(str, paths))
    if str(output) == STDIN:
        raise TraceError("- is no name for training data and its card; name a .jsonl or .parquet file")
    spare_logs(names, output, *(f"{output}.card{suffix}" for suffix in (".md", ".json")))
    episodes, report = read_episodes(names, format, mapping, strict, progress, error_patterns)
    schemas = None if tools is None else read_tools(tools)
    given = give_tools(episodes, schemas)
    of_tools = tool_warnings(episodes, given, schemas)
    left_out: Counter[str] = Counter()
    scores, source = _scores(episodes, solved_at, ranked=kind == "dpo")
    if kind == "steps":
        rows, balance = step_rows(episodes, left_out)
        warnings = []
        source = "not used: labels are of steps"
    else:
        rewarded = any(e.reward is not None for e in episodes) and all(score is None for score in scores)
        samples = _samples(episodes, scores, left_out, prompts=kind == "grpo")
        if kind != "grpo" and not keep_tool_faults:
            samples = _without_tool_faults(samples, left_out)
        rows, balance = _rows(
            kind, samples, per_task or _PER_TASK, match_length, same_prompt, left_out, keep_unscored
        )
        if rewarded and left_out[_NO_SCORE]:
            left_out[_NO_THRESHOLD] = left_out.pop(_NO_SCORE)
        warnings = [*mixed_warnings(samples, left_out), *opening_warnings(balance), *prompt_warnings(balance)]
    if not rows:
        why = "; ".join(f"{count} x {reason}" for reason, count in left_out.items() if count)
        if kind == "sft" and left_out[_NO_SCORE] + left_out[_NO_THRESHOLD]:
            why += "; --keep-unscored takes episodes without an outcome, as demonstrations"
        raise TraceError(
            f"no {kind} row can be made of {counted(len(episodes), 'episode')}: {why or 'there are none'}"
        )
    warnings += of_tools
    balance = {**balance, **add_tokens(rows, episodes)}
    warnings += image_warnings(take_digests_off(rows), len(rows))
    if (unscored := balance.get(UNSCORED, 0)) > 0:
        warnings.append(f"of {unscored:,} of {len(rows):,} rows nothing says that the task was solved")
    target = Path(output)
    digest = write_rows(rows, target)
    card = card_of(kind, names, target, digest, report, rows, left_out, source, balance, warnings)
    Path(f"{target}.card.md").write_text(card_text(card), encoding="utf-8", errors="replace")
    Path(f"{target}.card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return Export(rows, card)


def _must_matter(kind: str, options: Iterable[str]) -> None:
    for name in options:
        if kind not in _OF_KINDS[name]:
            option, kinds = name.replace("_", "-"), " and ".join(_OF_KINDS[name])
            raise TraceError(f"--{option} changes nothing of {kind}, only of {kinds}; leave it out")


def _scores(
    episodes: Sequence[Episode], solved_at: float | None, ranked: bool
) -> tuple[list[float | None], str]:
    """A score each, and where it comes from."""
    rewards = [e.reward if e.reward is not None and np.isfinite(e.reward) else None for e in episodes]
    known = [r for r in rewards if r is not None]
    if solved_at is not None:
        must_be_finite(solved_at)
        return [
            None if r is None else float(r >= solved_at) for r in rewards
        ], f"solved: reward of at least {solved_at:g}"
    binary = bool(known) and all(r in (0.0, 1.0) for r in known)
    if any(e.success is not None for e in episodes):
        if binary and any(
            e.success is None and r is not None for e, r in zip(episodes, rewards, strict=True)
        ):
            return [
                r if e.success is None else float(e.success) for e, r in zip(episodes, rewards, strict=True)
            ], f"solved: {BOTH}"
        return [
            None if e.success is None else float(e.success) for e in episodes
        ], "solved: the log's success"
    if binary:
        return list(rewards), "solved: reward of 1, as every reward is 0 or 1"
    if ranked and known:
        return list(rewards), "ranked by reward"
    return [None] * len(episodes), "unknown: give --solved-at" if known else "unknown: no reward, no success"


def _samples(
    episodes: Sequence[Episode], scores: Sequence[float | None], left_out: Counter[str], prompts: bool
) -> list[Sample]:
    """Samples of the episodes that make one. Turns are let go of, so that texts are not held in two forms; those with token ids stay."""
    found: list[Sample] = []
    for episode, score in zip(episodes, scores, strict=True):
        sample = sample_of(episode, score, prompts)
        if not any(turn.token_ids for turn in episode.turns):
            episode.turns = []
        if isinstance(sample, str):
            left_out[f"episode with {sample}"] += 1
        else:
            found.append(sample)
    return found


def _without_tool_faults(samples: list[Sample], left_out: Counter[str]) -> list[Sample]:
    best: dict[Any, float] = {}
    for sample in samples:
        best[sample.key] = max(
            best.get(sample.key, -np.inf), sample.score if sample.score is not None else -np.inf
        )
    kept = [
        s for s in samples if not (s.tool_fault and s.score is not None and s.score < max(best[s.key], 1e-12))
    ]
    left_out["episode that failed after a fault of a tool"] += len(samples) - len(kept)
    return kept


def _rows(
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
    left_out[_NO_SCORE] += len(fresh) - len(known) - len(unscored)
    if kind == "kto":
        rows = [
            {
                "prompt": s.prompt,
                "completion": s.completion,
                "label": s.score == 1.0,
                "tools": s.tools,
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
        {"messages": s.prompt + s.completion, "tools": s.tools, "task": s.task, "episode": s.episode}
        for s in fresh
        if s.score == 1.0 or (s.score is None and unscored)
    ]
    return rows, {**given_by_others([*solved, *unscored]), **({UNSCORED: len(unscored)} if unscored else {})}


def _dpo(pair: Pair) -> dict[str, Any]:
    return {
        "prompt": pair.prompt, "chosen": pair.chosen_messages, "rejected": pair.rejected_messages, "tools": pair.chosen.tools,
        "task": pair.chosen.task, "chosen_episode": pair.chosen.episode, "rejected_episode": pair.rejected.episode,
    }  # fmt: skip


def _prompts(samples: list[Sample]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The prompt of whatever is attempted (`Sample.key`, as for pairs) once, its first attempt's, with how many attempts were solved."""
    tasks: dict[Any, list[Sample]] = {}
    for sample in samples:
        tasks.setdefault(sample.key, []).append(sample)
    rows = [
        {
            "prompt": attempts[0].prompt, "tools": attempts[0].tools, "task": attempts[0].task, "attempts": len(attempts),
            "solved": sum(s.score == 1.0 for s in attempts) if all(s.score is not None for s in attempts) else None,
        }
        for attempts in tasks.values()
    ]  # fmt: skip
    prompts = Counter(json.dumps(row["prompt"]) for row in rows)
    open_ones = sum(row["solved"] is None for row in rows)
    balance: dict[str, Any] = {_OPEN: open_ones} if open_ones else {}
    return rows, balance | {SAME_PROMPT_ROWS: sum(count for count in prompts.values() if count > 1)}
