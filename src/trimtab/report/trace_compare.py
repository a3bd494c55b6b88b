"""Two sets of agent logs side by side: what differs by more than chance, with intervals, also at the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.detect.trace_contrasts import judge_contrasts
from trimtab.errors import TraceError
from trimtab.measure.trace_contrasts import contrasts
from trimtab.report.inert import inert
from trimtab.report.trace_lines import contrast_line
from trimtab.traces.engine import table_of
from trimtab.traces.join import joined
from trimtab.traces.reading import ReadReport
from trimtab.traces.table import TraceTable
from trimtab.traces.tool_errors import compile_patterns

__all__ = ["compare_lines", "compare_tables", "compare_traces"]


def compare_traces(
    a: Iterable[str | Path],
    b: Iterable[str | Path],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    strict: bool = False,
    solved_at: float | None = None,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
    error_patterns: Iterable[str] = (),
) -> dict[str, Any]:
    """Contrasts of logs a less logs b, as JSON types. TraceError for logs that cannot be read or hold no episode."""
    tables, sides = [], []
    for paths in (list(map(str, a)), list(map(str, b))):
        report = ReadReport(strict=strict, progress=progress, error_patterns=compile_patterns(error_patterns))
        table = table_of(paths, report, format, mapping, engine)
        if not table.num_episodes:
            raise TraceError(f"{', '.join(paths)}: no episode to compare")
        tables.append(table)
        sides.append(
            {
                "logs": paths,
                "episodes": table.num_episodes,
                "malformed": report.num_malformed,
                "notes": dict(report.notes),
            }
        )
    return {"a": sides[0], "b": sides[1], **compare_tables(tables[0], tables[1], solved_at)}


def compare_tables(a: TraceTable, b: TraceTable, solved_at: float | None = None) -> dict[str, Any]:
    """What differs between two tables: every contrast that can be judged, the most certain first; `exit_code` 1 when one is real."""
    both = joined(a, b)
    solved, source = both.solved(solved_at)
    is_a = np.arange(both.num_episodes) < a.num_episodes
    judged = judge_contrasts(contrasts(both, is_a, ~is_a, outcome=solved if source else None))
    shared = len(set(a.tasks) & set(b.tasks))
    rows = []
    for one in judged:
        row = {
            **asdict(one.contrast),
            **{name: value for name, value in asdict(one).items() if name != "contrast"},
        }
        row["real_within"] = bool(one.within_p < 0.05)
        rows.append(row)
    differs = [row for row in rows if row["real"] or row["real_within"]]
    if not rows:
        verdict, code = "not judged yet", 2
    else:
        verdict, code = ("different", 1) if differs else ("no difference found", 0)
    return {
        "verdict": verdict, "exit_code": code, "solved_by": source, "shared_tasks": shared, "contrasts": rows,
        "only_a": sorted(set(a.tools) - set(b.tools)), "only_b": sorted(set(b.tools) - set(a.tools)),
    }  # fmt: skip


def compare_lines(found: dict[str, Any]) -> list[str]:
    """The same for a person, safe to print."""
    return [inert(line) for line in _lines(found)]


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['verdict'].upper()}: A against B"
    for side in ("a", "b"):
        yield f"  {side.upper()}  {', '.join(found[side]['logs'])}: {found[side]['episodes']:,} episodes, {found[side]['malformed']:,} malformed lines"
    yield f"  {found['shared_tasks']:,} tasks in both; {len(found['contrasts'])} features, intervals and p corrected for all of them"
    shown = [row for row in found["contrasts"] if row["real"] or row["real_within"]]
    yield from (f"    {contrast_line(row, 'A', 'B')}" for row in shown)
    if found["contrasts"] and not shown:
        yield "    nothing that could not be chance"
    if not found["contrasts"]:
        yield "    too few episodes or tasks on a side to judge anything (10 of each)"
    for side in ("a", "b"):
        if names := found[f"only_{side}"]:
            yield f"  tools called in {side.upper()} only: {', '.join(names[:20])}"
