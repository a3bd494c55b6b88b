"""Partial tables, as workers send them, to one table of all episodes: the same whatever the number of
parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.stats.intervals import quantile_places
from trimtab.traces.table.compact import Codes, Names, Widened
from trimtab.traces.table.language import MARKS
from trimtab.traces.table.prompt_groups import grouped_by_prompt
from trimtab.traces.table.required_files import FileUses
from trimtab.traces.table.types import COUNTS, MAX_EVIDENCE, MAX_TOOLS, OTHER, Evidence, ToolRow, TraceTable
from trimtab.typing import Array

_ANY, _FEW, _MANY = 2**62, 256, 2**16
CODED = {"task": _ANY, "group": _ANY, "stop": _FEW, "first_error": _MANY, "version": _FEW, "policy": _ANY}
"""Columns of codes -> how many names each may have; what comes after as many shares one."""
PLAIN = ("success", "truncated", "symptom", "symptom_turn", "symptom_step")
FLOATS = ("reward", "tokens", "duration_s", "cost", "ratio", "time")
MAX_DECLARED = 1_000
_LISTED = 50_000  # ids of more episodes are not made a list: each would take 60 bytes more


@dataclass(frozen=True)
class Partial:
    """The facts of some episodes, n of them, in a few bytes each."""

    ids: tuple[Array, Array]  # `Names.packed`
    sources: tuple[Array, Array]
    ints: dict[str, Array]  # (n,) each
    floats: dict[str, Array]  # (n,) each
    codes: dict[str, list[str]]  # the names that columns of `CODED` stand for
    prompts: Array  # (n,)
    tools: dict[str, ToolRow]  # `first` and `last` count from this part's first episode
    tool_names: list[str]
    # of each tool that an episode calls: episode, tool, did one of the calls fail
    uses: tuple[Array, Array, Array]
    latency: dict[str, Array]  # seconds
    slowest: dict[str, list[tuple[float, int, Evidence]]]  # seconds, order of coming
    files: FileUses
    declared: list[str]
    evidence: dict[str, list[Evidence]]
    nan_rewards: int
    checked: int
    error_flags_in_log: bool

    @property
    def size(self) -> int:
        """n."""
        return len(self.prompts)


def first_tools(known: Mapping[str, Any], part: Partial) -> frozenset[str] | None:
    """Return the tools that keep a row once `part` follows; None where it brings no more than there is room
    for.

    Where it brings more, its calls must be counted again with only these.
    """
    fresh = [name for name in part.tools if name not in known and name != OTHER]
    room = MAX_TOOLS - len([name for name in known if name != OTHER])
    return frozenset([*known, *fresh[: max(room, 0)]]) if len(fresh) > room else None


def combine(parts: Sequence[Partial]) -> TraceTable:
    """Return the table of all parts' episodes, in their order."""
    sizes = [part.size for part in parts]
    starts = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
    names_of_ints = (*COUNTS, *MARKS, *PLAIN)
    ints: dict[str, Any] = {name: _joined([part.ints[name] for part in parts]) for name in names_of_ints}
    names: dict[str, list[str]] = {}
    for name, limit in CODED.items():
        codes = Codes(limit)
        moved = [np.array([*(codes.of(text) for text in p.codes[name]), -1], np.int64) for p in parts]
        ints[name] = _joined([m[p.ints[name]] for m, p in zip(moved, parts, strict=True)])
        names[name] = list(codes)
    ids, sources = (_names([getattr(part, what) for part in parts]) for what in ("ids", "sources"))
    prompts = _joined([part.prompts for part in parts])
    group, groups, by_prompt = grouped_by_prompt(ints["group"], names["group"], prompts, ids)
    floats: dict[str, Any] = {name: _joined([p.floats[name] for p in parts], np.float64) for name in FLOATS}
    tool_names, used, erred = _uses(parts, starts)
    files, file_used = _files(parts, starts)
    declared = dict.fromkeys(name for part in parts for name in part.declared)
    return TraceTable(
        ids=ids, counts=Widened({name: ints[name] for name in COUNTS}), **floats,
        success=ints["success"].astype(np.int8), truncated=ints["truncated"].astype(np.int8), group=group,
        **{name: ints[name].astype(np.int64) for name in (*PLAIN[2:], *CODED) if name != "group"},
        marks=Widened({name: ints[name] for name in MARKS}), files=files, file_used=file_used,
        versions=names["version"], policies=names["policy"],
        tasks=names["task"], groups=groups, by_prompt=by_prompt, stops=names["stop"],
        first_errors=names["first_error"],
        tools=_tools(parts, starts), tool_names=tool_names, used=used, erred=erred,
        declared_tools=frozenset(list(declared)[:MAX_DECLARED]),
        nan_rewards=sum(p.nan_rewards for p in parts),
        num_checked_schemas=sum(p.checked for p in parts), sources=sources, evidence=_evidence(parts),
        error_flags_in_log=any(p.error_flags_in_log for p in parts),
    )  # fmt: skip


def _joined(columns: Sequence[Array], kind: Any = np.int8) -> Array:
    return np.concatenate(columns) if columns else np.zeros(0, kind)


def _names(packed: Sequence[tuple[Array, Array]]) -> Sequence[str]:
    texts, sizes = _joined([text for text, _ in packed], np.uint8), _joined([size for _, size in packed])
    names = Names.joined(texts, sizes)
    return list(names) if len(names) <= _LISTED else names


def _uses(parts: Sequence[Partial], starts: Sequence[int]) -> tuple[list[str], Any, Any]:
    """Names of tools, and (E, T) which of them each episode called and failed to."""
    codes = Codes()
    moved = [np.array([codes.of(name) for name in part.tool_names], np.int64) for part in parts]
    used, erred = np.zeros((starts[-1], len(codes)), bool), np.zeros((starts[-1], len(codes)), bool)
    for part, start, code in zip(parts, starts, moved, strict=False):
        episode, tool, failed = part.uses
        if episode.size:
            used[episode + start, code[tool]] = True
            erred[episode[failed] + start, code[tool[failed]]] = True
    return list(codes), used, erred


def _added(row: ToolRow, more: ToolRow, start: int) -> None:
    """Add the calls of a later part, whose first episode has the number `start`."""
    row.first = more.first + start if row.first < 0 <= more.first else row.first
    row.last = more.last + start if more.last >= 0 else row.last
    for name in ("calls", "failed", "unknown", "episodes", "sum_ff", "sum_fc", "sum_cc"):
        setattr(row, name, getattr(row, name) + getattr(more, name))
    row.faults.update(more.faults)
    row.kinds = row.kinds.merge(more.kinds)


def _tools(parts: Sequence[Partial], starts: Sequence[int]) -> dict[str, ToolRow]:
    rows: dict[str, ToolRow] = {}
    slowest: dict[str, list[tuple[float, int, int, Evidence]]] = {}
    for i, (part, start) in enumerate(zip(parts, starts, strict=False)):
        for name, row in part.tools.items():
            _added(rows.setdefault(name, ToolRow()), row, start)
        for name, some in part.slowest.items():
            slowest.setdefault(name, []).extend((-s, i, order, where) for s, order, where in some)
    for name, row in rows.items():
        seconds = [part.latency[name] for part in parts if name in part.latency]
        if seconds:
            _time_row(row, np.concatenate(seconds))
            ordered = sorted(slowest[name], key=lambda one: one[:3])
            row.slowest = [where for *_, where in ordered[:MAX_EVIDENCE]]
    return rows


def _files(parts: Sequence[Partial], starts: Sequence[int]) -> tuple[dict[str, ToolRow], Any]:
    names = list(parts[0].files.rows) if parts else []
    rows, used = {name: ToolRow() for name in names}, np.zeros((starts[-1], len(names)), bool)
    for part, start in zip(parts, starts, strict=False):
        for name, row in part.files.rows.items():
            _added(rows[name], row, start)
        used[part.files.episode + start, part.files.file] = True
    return rows, used


def _evidence(parts: Sequence[Partial]) -> dict[str, list[Evidence]]:
    evidence: dict[str, list[Evidence]] = {}
    for part in parts:
        for what, some in part.evidence.items():
            if what in evidence or len(evidence) < 4 * MAX_TOOLS:
                examples = evidence.setdefault(what, [])
                examples.extend(some[: MAX_EVIDENCE - len(examples)])
    return evidence


def _time_row(row: ToolRow, seconds: Array) -> None:
    """Set what the row says of the latencies of its calls, in seconds.

    >>> row = ToolRow()
    >>> _time_row(row, np.array([0.5] * 19 + [250.0]))
    >>> row.timed, round(row.p95, 3), row.p95_low, row.p95_high
    (20, 12.975, 0.5, nan)
    """
    row.timed = seconds.size
    if not seconds.size:
        return
    row.p50, row.p95, row.p99 = (float(q) for q in np.quantile(seconds, [0.5, 0.95, 0.99]))
    indices = quantile_places(seconds.size, 0.95)
    ranked = np.partition(seconds, [index for index in indices if index is not None] or [0])
    row.p95_low, row.p95_high = (math.nan if index is None else float(ranked[index]) for index in indices)
