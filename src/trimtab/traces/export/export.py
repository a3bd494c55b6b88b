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
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.plural import counted
from trimtab.traces.export.data_card import (
    card_of,
    greeting_warnings,
    mixed_warnings,
    opening_warnings,
    prompt_warnings,
)
from trimtab.traces.export.images import image_warnings, take_digests_off
from trimtab.traces.export.prm_steps import step_rows
from trimtab.traces.export.rows import NO_SCORE, UNSCORED, rows_of
from trimtab.traces.export.samples import Sample, sample_of
from trimtab.traces.export.sanitize import encodable
from trimtab.traces.export.scores import BY_SIDE, scores_of
from trimtab.traces.export.tokens import add_tokens
from trimtab.traces.export.tool_schemas import give_tools, read_tools, tool_warnings
from trimtab.traces.export.write import CHATS, card_text, write_rows
from trimtab.traces.files.find import STDIN, spare_logs
from trimtab.traces.read import read_episodes
from trimtab.traces.readers.trl.reward_columns import UNTOLD

_NO_THRESHOLD = (
    "episode of which nothing says whether it is solved: rewards are not only 0 and 1, give --solved-at"
)
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
    scores, source = scores_of(episodes, solved_at, ranked=kind == "dpo", sides=kind in ("sft", "dpo", "kto"))
    if kind == "steps":
        rows, balance = step_rows(episodes, left_out)
        warnings = []
        source = "not used: labels are of steps"
    else:
        rewarded = any(e.reward is not None for e in episodes) and all(score is None for score in scores)
        samples = _samples(episodes, scores, left_out, kind == "grpo", source == BY_SIDE)
        if kind != "grpo" and not keep_tool_faults:
            samples = _without_tool_faults(samples, left_out)
        rows, balance = rows_of(
            kind, samples, per_task or _PER_TASK, match_length, same_prompt, left_out, keep_unscored
        )
        if rewarded and left_out[NO_SCORE]:
            left_out[_NO_THRESHOLD] = left_out.pop(NO_SCORE)
        warnings = [*mixed_warnings(samples, left_out), *opening_warnings(balance), *prompt_warnings(balance)]
        warnings += greeting_warnings(rows)
    if not rows:
        why = "; ".join(f"{count} x {reason}" for reason, count in left_out.items() if count)
        if kind == "sft" and left_out[NO_SCORE] + left_out[_NO_THRESHOLD]:
            why += "; --keep-unscored takes episodes without an outcome, as demonstrations"
        raise TraceError(
            f"no {kind} row can be made of {counted(len(episodes), 'episode')}: {why or 'there are none'}"
        )
    warnings += of_tools
    warnings += [
        f"{note}. Better and worse may be the wrong way round"
        for note in report.notes
        if note.startswith(UNTOLD)
    ]
    balance = {**balance, **add_tokens(rows, episodes)}
    warnings += image_warnings(take_digests_off(rows), len(rows))
    if (unscored := balance.get(UNSCORED, 0)) > 0:
        warnings.append(f"of {unscored:,} of {len(rows):,} rows nothing says that the task was solved")
    target = Path(output)
    balance |= encodable(rows, None if target.suffix.lower() == ".jsonl" else CHATS)
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


def _samples(
    episodes: Sequence[Episode],
    scores: Sequence[float | None],
    left_out: Counter[str],
    prompts: bool,
    by_row: bool,
) -> list[Sample]:
    """Samples of the episodes that make one, `by_row` as sides of rows. Turns are let go of, so that texts are not held in two forms; those with token ids stay."""
    found: list[Sample] = []
    for episode, score in zip(episodes, scores, strict=True):
        sample = sample_of(episode, score, prompts, episode.source if by_row else None)
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
