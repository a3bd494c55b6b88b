"""Two sets of agent logs side by side: what differs by more than chance, with intervals, also at the same
tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.traces.multiple_testing import judge_contrasts
from trimtab.errors import TraceError
from trimtab.measure.traces.contrasts import contrasts
from trimtab.measure.traces.pass_at_k import outcome_contrast, pass_k, solved_interval
from trimtab.report.control_characters import escape_controls
from trimtab.report.screen import figure
from trimtab.report.traces.trace_diagnosis import contrast_payload
from trimtab.report.traces.trace_lines import contrast_line, p_words, pass_line
from trimtab.traces.core.plural import counted, noted
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.errors.patterns import compile_patterns
from trimtab.traces.table.merge import joined
from trimtab.traces.table.types import TraceTable
from trimtab.traces.table_of_logs import table_of

_CLUSTERS = {
    "all": "tasks",
    "some": "tasks, an episode that names none being its own",
    "none": "episodes, of which none names its task",
}


def compare_traces(
    a: Iterable[str | Path],
    b: Iterable[str | Path],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    strict: bool = False,
    solved_at: float | None = None,
    progress: Callable[[int], None] | None = None,
    error_patterns: Iterable[str] = (),
) -> dict[str, Any]:
    """Contrasts of logs a less logs b, as JSON types. TraceError for logs that cannot be read or hold no
    episode."""
    tables, sides, unread_fracs = [], [], [0.0]
    for paths in (list(map(str, a)), list(map(str, b))):
        report = ReadReport(strict=strict, progress=progress, error_patterns=compile_patterns(error_patterns))
        table = table_of(paths, report, format, mapping)
        if not table.num_episodes:
            raise TraceError(f"{', '.join(paths)}: no episode to compare")
        tables.append(table)
        counts = {"episodes": table.num_episodes, "malformed": report.num_malformed}
        unread_fracs.append(report.unread_messages.total() / max(1, report.num_messages))
        unread = {"messages": report.num_messages, "unread": dict(report.unread_messages.most_common())}
        sides.append({"logs": paths, **counts, **unread, "notes": dict(report.notes)})
    result = {"a": sides[0], "b": sides[1], **compare_tables(tables[0], tables[1], solved_at)}
    blind = {"verdict": "blind", "exit_code": 2} if max(unread_fracs) > bound("trace_unread") else {}
    return {**result, **blind}


def compare_tables(a: TraceTable, b: TraceTable, solved_at: float | None = None) -> dict[str, Any]:
    """What differs between two tables: every contrast that can be judged, the most certain first; `exit_code`
    1 when one is real."""
    both = joined(a, b)
    solved, source = both.solved(solved_at)
    is_a = np.arange(both.num_episodes) < a.num_episodes
    outcome = _outcome(a, b, both, solved if source else None)
    if source and not outcome:  # only one of them says what is solved
        solved, source = np.full(both.num_episodes, -1), ""
        outcome = _outcome(a, b, both, None)
    outcome_values = solved if source else np.full(both.num_episodes, -1)
    all_features = contrasts(both, is_a, ~is_a, outcome=outcome_values)
    others = [one for one in all_features if one.name != outcome.get("name")]
    judged = judge_contrasts(others, 1 - bound("trace_outcome_budget") if outcome else 1.0)
    shared = len(set(a.tasks) & set(b.tasks))
    rows = list(map(contrast_payload, judged))
    differs = [row for row in rows if row["real"] or row["real_within"]] or outcome.get("real")
    if outcome.get("p") is None and not any(math.isfinite(row["p"]) for row in rows):
        verdict, code = "not judged yet", 2
    else:
        verdict, code = ("different", 1) if differs else ("no difference found", 0)
    return {
        "verdict": verdict, "exit_code": code, "solved_by": source, "outcome": outcome,
        "shared_tasks": shared, "contrasts": rows,
        "only_a": sorted(set(a.tools) - set(b.tools)), "only_b": sorted(set(b.tools) - set(a.tools)),
    }  # fmt: skip


def _outcome(a: TraceTable, b: TraceTable, both: TraceTable, solved: Any) -> dict[str, Any]:
    """The outcome of A less B, with most of the level: solved, or the reward where nothing says what is
    solved; empty without either."""
    is_a = np.arange(both.num_episodes) < a.num_episodes
    known = solved is not None
    values = np.where(solved >= 0, solved, np.nan) if known else both.reward
    result = outcome_contrast(both, is_a, values, "is solved" if known else "reward", known)
    if result is None:
        return {}
    contrast, paired = result
    (judged,) = judge_contrasts([contrast], bound("trace_outcome_budget"))
    sides: dict[str, Any] = {}
    for name, table, mine in (("a", a, is_a), ("b", b, ~is_a)):
        if known:
            ends = solved_interval(table, solved[mine])
            sides |= {f"low_{name}": ends[0], f"high_{name}": ends[1]}
            sides[f"pass_k_{name}"] = [asdict(row) for row in pass_k(table, solved[mine])]
    row: dict[str, Any] = {name: getattr(judged, name) for name in ("low", "high", "real")}
    row |= {"difference": contrast.difference, "p": judged.p if math.isfinite(judged.p) else None}
    means = {name: getattr(contrast, name) for name in ("name", "mean_a", "mean_b", "n_a", "n_b", "clusters")}
    of_task = (both.task >= 0)[np.isfinite(values)]
    named = "all" if of_task.all() else "some" if of_task.any() else "none"
    return {**means, **row, "paired": paired, "tasks_named": named, **sides}


def compare_lines(result: dict[str, Any]) -> list[str]:
    """The same for a person, safe to print."""
    return [escape_controls(line) for line in _lines(result)]


def _lines(result: dict[str, Any]) -> Iterator[str]:
    yield f"{result['verdict'].upper()}: A against B"
    for side in ("a", "b"):
        yield f"  {side.upper()}  {', '.join(result[side]['logs'])}: {counted(result[side]['episodes'], 'episode')}, {counted(result[side]['malformed'], 'malformed line')}"  # noqa: E501
        if unread := result[side].get("unread"):
            share = f"{sum(unread.values()):,} of {counted(result[side]['messages'], 'message')}"
            yield f"     {share} could not be read, as {noted(*next(iter(unread.items()))[::-1])}"
    yield from _outcome_lines(result["outcome"], result["solved_by"])
    unnamed = result["outcome"].get("tasks_named") == "none"
    tasks = "no task is named" if unnamed else f"{counted(result['shared_tasks'], 'task')} in both"
    yield f"  {tasks}; {counted(len(result['contrasts']), 'other feature')}"
    yield "  95 % intervals and p hold for the outcome and all features at once"
    shown = [row for row in result["contrasts"] if row["real"] or row["real_within"]]
    yield from (f"    {contrast_line(row, 'A', 'B')}" for row in shown)
    if result["contrasts"] and not shown:
        yield "    nothing that could not be chance"
    if not result["contrasts"]:
        yield "    none can be judged: the same in all, or fewer than 10 episodes or tasks on a side"
    for side in ("a", "b"):
        if names := result[f"only_{side}"]:
            yield f"  tools called in {side.upper()} only: {', '.join(names[:20])}"


def _outcome_lines(row: dict[str, Any], solved_by: str) -> Iterator[str]:
    """The outcome's numbers, always; what is missing is said."""
    if not row:
        yield "  solved: not observed, as A and B do not both say what is solved, nor both a reward"
        return
    if row["name"] == "is solved":
        sides = [
            f"{s.upper()} {100 * row[f'mean_{s}']:.1f} %{_ends(row, s)} of {row[f'n_{s}']:,}"
            for s in ("a", "b")
        ]
        name, scale, unit = "solved", 100, " points"
    else:
        sides = [f"{s.upper()} {figure(row[f'mean_{s}'])} of {row[f'n_{s}']:,}" for s in ("a", "b")]
        name, scale, unit = "mean reward", 1, ""
    how = f"{row['clusters']:,} {_CLUSTERS[row['tasks_named']]}"
    if row["paired"]:
        how = f"the mean of the differences at the {row['clusters']:,} tasks in both"
    gap = f"{figure(scale * row['difference'], '+')}{unit}"
    if row["p"] is None:
        enough = min(row["n_a"], row["n_b"], row["clusters"]) >= bound("trace_contrast_min")
        alike = "the tasks are all alike, which says nothing of others"
        why = alike if enough else "too few episodes or tasks (10 of each)"
        yield f"  {name}: {', '.join(sides)}; {gap}, not judged: {why}"
    else:
        low, high = (figure(scale * row[end], "+") for end in ("low", "high"))
        ends = f" ({low} to {high})" if math.isfinite(row["low"]) else ""
        differs = ": different" if row["real"] else ""
        yield f"  {name}: {', '.join(sides)}; {gap}{ends}, {p_words(row['p'])}, {how}{differs}"
    if row["name"] == "is solved":
        yield f"    by {solved_by}"
        for side in ("a", "b"):
            yield from pass_line(row[f"pass_k_{side}"], f"  {side.upper()} ")


def _ends(row: dict[str, Any], side: str) -> str:
    low, high = row[f"low_{side}"], row[f"high_{side}"]
    return f" ({100 * low:.0f} to {100 * high:.0f})" if math.isfinite(low) else ""
