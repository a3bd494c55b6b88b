"""The verdict on two sides: comparable, not comparable, or undecided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trimtab.errors import ParityError, TraceError
from trimtab.parity.score_equivalence import MARGIN, PairedTest, compared_episodes
from trimtab.parity.setup_differences import SEVERITIES, Difference, setup_differences
from trimtab.parity.setup_file import Setup, load_setup, setup_of_episodes
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.plural import counted
from trimtab.traces.read import read_episodes

_SETTINGS = (".yaml", ".yml", ".json")


def read_side(path: str, traces: str | None = None) -> tuple[Setup, list[Episode]]:
    """Return the set-up and the episodes of a side.

    Args:
        path: a YAML or JSON file of settings (`PATH#a.b` for a part of it), or agent logs.
        traces: agent logs of this side, where `path` is a file of settings.

    Raises:
        ParityError: neither settings nor agent logs.
    """
    episodes = _episodes(traces) if traces else []
    name = path.partition("#")[0]
    if Path(name).suffix in _SETTINGS and not traces:
        try:
            return load_setup(path), episodes
        except ParityError as no_settings:
            if Path(name).suffix != ".json" or "not a mapping" not in str(no_settings):
                raise
    elif Path(name).suffix in _SETTINGS:
        stated, seen = load_setup(path), setup_of_episodes(episodes, str(traces))
        whole = replace(
            stated, tools=stated.tools or seen.tools, fields={**seen.fields, **stated.fields},
            notes=stated.notes + seen.notes,
        )  # fmt: skip
        return whole, episodes
    episodes = _episodes(path)
    return setup_of_episodes(episodes, path), episodes


def _episodes(path: str) -> list[Episode]:
    try:
        return read_episodes([path])[0]
    except TraceError as error:
        raise ParityError(f"{path} is neither settings (.yaml, .json) nor agent logs: {error}") from error


def parity_of(
    train: tuple[Setup, list[Episode]], evaluation: tuple[Setup, list[Episode]], margin: float = MARGIN
) -> dict[str, Any]:
    """Return the verdict of two sides (`read_side`): differences, test of scores, shifted stop reasons.

    Args:
        margin: difference of mean scores that does not matter, in units of the score.

    Returns:
        `verdict` (comparable, not comparable, undecided), `headline`, `differences`, `scores`, `stop_reasons`
        `notes`, `exit_code` (0, 1, 2).
    """
    differences = setup_differences(train[0], evaluation[0])
    scores: PairedTest | None = None
    stops: list[PairedTest] = []
    notes = [*train[0].notes, *evaluation[0].notes]
    paired = bool(train[1] and evaluation[1])
    if paired:
        scores, stops = compared_episodes(train[1], evaluation[1], margin)
        if scores is None:
            notes.append("no task is in both sets of episodes, or none has a score; scores were not compared")
    grave = [d for d in differences if d.severity != "info"]
    verdict, headline = _verdict(grave, scores, stops, paired)
    return {
        "train": train[0].source, "eval": evaluation[0].source, "verdict": verdict, "headline": headline,
        "differences": [asdict(row) for row in differences],
        "scores": None if scores is None else {**_test_row(scores), "margin": margin},
        "stop_reasons": [_test_row(row) for row in stops], "notes": notes,
        "num_train_episodes": len(train[1]), "num_eval_episodes": len(evaluation[1]),
        "exit_code": {"comparable": 0, "not comparable": 1, "undecided": 2}[verdict],
    }  # fmt: skip


def _test_row(test: PairedTest) -> dict[str, Any]:
    return {**asdict(test), "difference": test.difference}


def _verdict(
    grave: Sequence[Difference], scores: PairedTest | None, stops: Sequence[PairedTest], paired: bool
) -> tuple[str, str]:
    """The word, and one sentence."""
    reasons = []
    if grave:
        counts = Counter(row.severity for row in grave)
        kinds = " and ".join(f"{counts[s]} {s}" for s in SEVERITIES if counts[s])
        reasons.append(
            f"{counted(len(grave), 'difference')} of the set-ups ({kinds}), first {grave[0].field}"
        )
    if stops:
        reasons.append(f"episodes end otherwise ({stops[0].name})")
    if scores is not None and scores.state == "different":
        reasons.append(f"scores differ by {scores.difference:+.3g}")
    if reasons:
        return "not comparable", f"Scores of the two sides cannot be compared: {'; '.join(reasons)}."
    if paired and (scores is None or scores.state == "undecided"):
        if scores is None:
            return "undecided", "The set-ups agree; the episodes have no task with a score in common."
        return "undecided", (
            f"The set-ups agree; over {counted(scores.num_tasks, 'task')} scores can be called neither equal "
            f"nor different: some {scores.num_needed} tasks are needed."
        )  # fmt: skip
    if scores is not None:
        return (
            "comparable",
            f"The set-ups agree, and scores are equivalent over {counted(scores.num_tasks, 'task')}.",
        )
    return "comparable", "The set-ups agree in all that both state; scores were not compared."


def parity_lines(result: dict[str, Any]) -> list[str]:
    """Return the verdict in lines."""
    lines = [
        f"{result['verdict'].upper()}: {result['train']} and {result['eval']}",
        f"  {result['headline']}",
    ]
    if result["differences"]:
        lines += ["", "Differences (training -> evaluation):"]
    for row in result["differences"]:
        lines.append(f"  [{row['severity']}] {row['field']}: {row['train']} -> {row['eval']}; {row['why']}")
    for row, what in ((result["scores"], "Scores"), *((stop, "Stop") for stop in result["stop_reasons"])):
        if row is not None:
            span = f"{row['train']:.3g} -> {row['eval']:.3g}, difference {row['difference']:+.3g}"
            lines.append(
                f"  {what}, {row['name']}: {span} ({row['low']:+.3g} to {row['high']:+.3g}), {row['state']}, "
                f"{counted(row['num_tasks'], 'task')}"
            )
    return [*lines, *(f"  note: {note}" for note in result["notes"])]
