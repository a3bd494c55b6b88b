"""Logs to a training set and its data card: SFT, DPO, KTO, GRPO prompts and step labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import TraceError
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.plural import counted
from trimtab.traces.export.data_card import (
    Dataset,
    card_of,
    card_text,
    greeting_warnings,
    image_warnings,
    opening_warnings,
    prompt_warnings,
    system_prompt_warnings,
)
from trimtab.traces.export.dataset_files import JSON_COLUMNS, write_rows
from trimtab.traces.export.export_options import ExportOptions
from trimtab.traces.export.prm_steps import step_rows
from trimtab.traces.export.row_cleanup import make_encodable, strip_digests
from trimtab.traces.export.rows import NO_SCORE, UNSCORED, rows_of
from trimtab.traces.export.samples import Sample, sample_of
from trimtab.traces.export.token_columns import add_tokens
from trimtab.traces.export.tool_declarations import fill_tools, read_tools, tool_warnings
from trimtab.traces.files.find import STDIN, spare_logs
from trimtab.traces.read import read_episodes
from trimtab.traces.readers.trl.reward_columns import UNCONFIRMED
from trimtab.traces.table.types import solved_by

_NO_THRESHOLD = (
    "episode of which nothing says whether it is solved: rewards are not only 0 and 1, give --solved-at"
)
_BY_SIDE = "the sides of the log's preferences: chosen rather than rejected"


@dataclass(frozen=True)
class Export:
    """What was written."""

    rows: list[dict[str, Any]]
    card: dict[str, Any]
    """The data card as JSON types. It is written next to the data as `<output>.card.md` and `.card.json`."""


def export(
    paths: Iterable[str | Path],
    kind: str,
    output: str | Path,
    options: ExportOptions = ExportOptions(),  # noqa: B008  # frozen
    progress: Callable[[int], None] | None = None,
) -> Export:
    """Write the episodes of logs as training data in TRL's conversational form.

    A task is solved by the log's success, by a reward of `solved_at`, or by a reward of 1 where all rewards
    are 0 or 1. dpo also ranks other rewards. All kinds have the `tools` of the log.

    Args:
        paths: Log files and folders.
        kind: sft (`messages` of solved episodes), dpo (`prompt`, `chosen` and `rejected` of attempts at one
            task), kto (`prompt`, `completion` and `label`), grpo (`prompt`, `task`, `attempts` and `solved`
            of each task) or steps (`prompt`, `completions` and `labels`).
        output: A .parquet or .jsonl file, or without a suffix a new folder for `datasets.load_from_disk`.
        options: How logs are read, and what is exported.
        progress: Called with the bytes of each piece read.

    Returns:
        The rows and the data card.

    Raises:
        TraceError: For logs that cannot be read, for an option that does not apply to the kind, for an output
            that cannot be written, or where no row is left. Then no file is written.

    Example:
        >>> import json, os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
        >>> log = os.path.join(folder, "log.jsonl")
        >>> with open(log, "w") as file:
        ...     _ = file.write(json.dumps({"messages": turns, "reward": 1}))
        >>> export([log], "sft", os.path.join(folder, "sft.jsonl")).card["rows"]
        1
    """
    options.check(kind)
    names, target = list(map(str, paths)), Path(output)
    if str(output) == STDIN:
        raise TraceError("- cannot name training data and its card; name a .jsonl or .parquet file")
    spare_logs(names, output, *(f"{output}.card{suffix}" for suffix in (".md", ".json")))
    reading = (options.format, options.mapping, options.strict, progress, options.error_patterns)
    episodes, report = read_episodes(names, *reading)
    schemas = None if options.tools is None else read_tools(options.tools)
    num_filled = fill_tools(episodes, schemas)
    warnings = tool_warnings(episodes, num_filled, schemas)  # before their turns are dropped
    dataset = _dataset(kind, episodes, options)
    rows = dataset.rows
    if not rows:
        made_of = counted(len(episodes), "episode")
        raise TraceError(f"no {kind} row can be made of {made_of}: {_why_none(dataset)}")
    unconfirmed = [note for note in report.notes if note.startswith(UNCONFIRMED)]
    dataset.warnings += warnings
    dataset.warnings += [f"{note}. Better and worse may be the wrong way round" for note in unconfirmed]
    dataset.balance |= add_tokens(rows, episodes)
    dataset.warnings += image_warnings(strip_digests(rows), len(rows))
    if (unscored := dataset.balance.get(UNSCORED, 0)) > 0:
        text = f"of {unscored:,} of {len(rows):,} rows nothing says that the task was solved"
        dataset.warnings.append(text)
    dataset.balance |= make_encodable(rows, None if target.suffix.lower() == ".jsonl" else JSON_COLUMNS)
    digest = write_rows(rows, target)
    card = card_of(dataset, names, target, digest, report)
    Path(f"{target}.card.md").write_text(card_text(card), encoding="utf-8", errors="replace")
    Path(f"{target}.card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return Export(rows, card)


def _dataset(kind: str, episodes: list[Episode], options: ExportOptions) -> Dataset:
    left_out: Counter[str] = Counter()
    scores, source = _scores(episodes, kind, options.solved_at)
    if kind == "steps":
        rows, balance = step_rows(episodes, left_out)
        return Dataset(kind, rows, left_out, balance, "not used: labels are of steps")
    rewarded = any(e.reward is not None for e in episodes) and all(score is None for score in scores)
    samples = _samples(episodes, scores, left_out, kind == "grpo", source == _BY_SIDE)
    if kind != "grpo" and not options.keep_tool_faults:
        samples = _without_tool_faults(samples, left_out)
    rows, balance = rows_of(kind, samples, options, left_out)
    if rewarded and left_out[NO_SCORE]:
        left_out[_NO_THRESHOLD] = left_out.pop(NO_SCORE)
    warnings = [*system_prompt_warnings(samples, left_out), *opening_warnings(balance)]
    warnings += [*prompt_warnings(balance), *greeting_warnings(rows)]
    return Dataset(kind, rows, left_out, balance, source, warnings)


def _why_none(dataset: Dataset) -> str:
    left_out = dataset.left_out
    why = "; ".join(f"{count} x {reason}" for reason, count in left_out.items() if count)
    if dataset.kind == "sft" and left_out[NO_SCORE] + left_out[_NO_THRESHOLD]:
        why += "; --keep-unscored takes episodes without an outcome, as demonstrations"
    return why or "there are none"


def _scores(
    episodes: Sequence[Episode], kind: str, solved_at: float | None
) -> tuple[list[float | None], str]:
    """Return the score of each episode, and where scores come from.

    In a set of preferences without any other outcome, chosen is 1 and rejected 0, which holds within a row
    only.
    """
    rewards = np.array([np.nan if e.reward is None else e.reward for e in episodes], float)
    success = np.array([-1 if e.success is None else e.success for e in episodes], np.int8)
    solved, source = solved_by(rewards, success, solved_at)
    if source:
        return [float(value) if value >= 0 else None for value in solved], f"solved: {source}"
    known = np.isfinite(rewards)
    by_side = kind in ("sft", "dpo", "kto") and not known.any()
    if by_side and episodes and all("preference" in e.extra for e in episodes):
        return [float(e.extra["preference"] == "chosen") for e in episodes], _BY_SIDE
    if kind == "dpo" and known.any():
        return [float(reward) if np.isfinite(reward) else None for reward in rewards], "ranked by reward"
    unknown = "unknown: give --solved-at" if known.any() else "unknown: no reward, no success"
    return [None] * len(episodes), unknown


def _samples(
    episodes: Sequence[Episode],
    scores: Sequence[float | None],
    left_out: Counter[str],
    prompts: bool,
    by_row: bool,
) -> list[Sample]:
    """Return the samples of the episodes that make one, `by_row` as sides of rows.

    Turns without token ids are dropped, so that texts are not in memory twice.
    """
    samples: list[Sample] = []
    for episode, score in zip(episodes, scores, strict=True):
        sample = sample_of(episode, score, prompts, episode.source if by_row else None)
        if not any(turn.token_ids for turn in episode.turns):
            episode.turns = []
        if isinstance(sample, str):
            left_out[f"episode with {sample}"] += 1
        else:
            samples.append(sample)
    return samples


def _without_tool_faults(samples: list[Sample], left_out: Counter[str]) -> list[Sample]:
    best: dict[Any, float] = {}
    for sample in samples:
        score = -np.inf if sample.score is None else sample.score
        best[sample.key] = max(best.get(sample.key, -np.inf), score)
    fair = [
        s for s in samples if not (s.tool_fault and s.score is not None and s.score < max(best[s.key], 1e-12))
    ]
    left_out["episode that failed after a fault of a tool"] += len(samples) - len(fair)
    return fair
