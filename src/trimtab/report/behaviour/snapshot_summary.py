"""Everything that views say of a run's snapshots, as JSON types: each one, two compared, and the advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from trimtab.errors import RunError
from trimtab.report.behaviour.checkpoint_evidence import evidence_of
from trimtab.report.run_view import RunView
from trimtab.snapshots import Snapshot, compare_snapshots, read_snapshots
from trimtab.snapshots.answer_traits import traits_of
from trimtab.snapshots.checkpoint_advice import advise_checkpoint
from trimtab.snapshots.snapshot_comparison import SLICES, drift_of, mean_entropy
from trimtab.traces.core.plural import counted

Json = dict[str, Any]


def snapshot_summary(
    view: RunView,
    before: int | None = None,
    after: int | None = None,
    checkpoints: Sequence[int] | None = None,
) -> Json:
    """Return what a run's snapshots say.

    Args:
        view: The run.
        before: Step of the snapshot to compare with; None: the first.
        after: Step of the other one; None: the last.
        checkpoints: Steps of the checkpoints that exist; None: those of the snapshots.

    Returns:
        JSON types: `snapshots`, `comparison` (None with fewer than two), `advice`, `problems`.

    Raises:
        RunError: There are no snapshots, or a step has none.

    Example:
        >>> snapshot_summary(load_view("runs/exp1"))["advice"]["step"]  # doctest: +SKIP
        400
    """
    stored = read_snapshots(view.reader)
    problems = [*stored.problems, *_failures(view)]
    if not stored.snapshots:
        lost = f"; {problems[0]}" if problems else ""
        raise RunError(f"{view.folder} has no snapshots: take them (docs/how-to/snapshots.md){lost}")
    first = stored.snapshots[0] if before is None else stored.at(before)
    second = stored.snapshots[-1] if after is None else stored.at(after)
    steps = None if checkpoints is None else [*(one.step for one in stored.snapshots), *checkpoints]
    advice = advise_checkpoint(evidence_of(view, stored.snapshots, steps), checkpoints)
    ranked = {one.evidence.step: one for one in advice.ranked}
    rows = [_row(stored.snapshots[0], one) for one in stored.snapshots]
    for row in rows:
        if (one := ranked.get(row["step"])) is not None:
            row |= {"score": one.score, "score_se": one.score_se, "training_reward": one.evidence.reward,
                    "alarms": list(one.evidence.alarms), "ess_frac": one.evidence.ess_frac}  # fmt: skip
    compared = compare_snapshots(first, second) if first.step != second.step else None
    return {
        "run": str(view.folder),
        "num_prompts": len(stored.snapshots[-1].prompts),
        "num_transcripts": 0 if (scores := stored.snapshots[-1].scores) is None else len(scores.lengths),
        "snapshots": rows,
        "comparison": None if compared is None else _comparison_json(compared),
        "advice": {
            "step": advice.step,
            "sentence": advice.sentence,
            "reasons": list(advice.reasons),
            "not_clearly_worse": list(advice.alike),
            "checkpoints": [
                {**asdict(one.evidence), "prompt_rewards": len(one.evidence.prompt_rewards),
                 "score": one.score, "score_se": one.score_se, "utility": one.utility}
                for one in advice.ranked
                if checkpoints is None or one.evidence.step in checkpoints
            ],
        },
        "problems": problems,
        "exit_code": 0,
    }  # fmt: skip


def snapshot_section(view: RunView) -> Json | None:
    """Return the summary for the page of a run; None for a run without snapshots."""
    if not view.reader.rows("snapshots") and not _failures(view):
        return None
    try:
        return snapshot_summary(view)
    except RunError as error:
        return {"problems": [str(error)], "snapshots": [], "comparison": None, "advice": None}


def _failures(view: RunView) -> list[str]:
    """Return one line on the snapshots that could not be taken, if any: the record names each fault."""
    failed = [row for row in view.errors if row.get("where") == "take a snapshot"]
    if not failed:
        return []
    last = failed[-1]
    times = counted(len(failed), "time")
    return [f"taking one failed at least {times}, last after step {last['step']}: {last['error']}"]


def _row(first: Snapshot, one: Snapshot) -> Json:
    traits = {name: _mean(values) for name, values in traits_of(one.answers).items()}
    return {
        "step": one.step,
        "traits": traits,
        "distinct_frac": len({answer.text.strip() for answer in one.answers}) / len(one.answers),
        "entropy": {name: mean_entropy(one.scores, name) for name in SLICES},
        "drift": drift_of(first, one),
        "drift_p99": drift_of(first, one, 0.99),
        "seconds": one.seconds,
    }


def _mean(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _comparison_json(compared: Any) -> Json:
    rows: Json = asdict(compared)
    rows["num_tests"] = compared.num_tests
    for row, change in zip(rows["changes"], compared.changes, strict=True):
        row["changed"] = change.changed
    return rows
