"""Parts of the columnar engine to one table: arrays gathered, then put into the order in which episodes began."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.traces.codes import Codes
from trimtab.traces.columns_part import Calls, Part
from trimtab.traces.facts import EXCERPT, says_unknown_tool
from trimtab.traces.stop_reasons import is_limit
from trimtab.traces.table import (
    COUNTS,
    MAX_EVIDENCE,
    MAX_TOOLS,
    NO_NAME,
    OTHER,
    Evidence,
    ToolRow,
    TraceTable,
    group_of,
)
from trimtab.traces.tool_errors import error_kind_of, fault_of

__all__ = ["ColumnTable", "End"]

Array = npt.NDArray[Any]
_MAX_KINDS = 16
_INTS = (
    "task",
    "group",
    "stop",
    "first_error",
    "success",
    "truncated",
    "wrong",
    "wrong_turn",
    "wrong_step",
    "version",
)
_LOOKED_AT = 50  # first places of a thing, from which those of different episodes are taken
_Row = tuple[int, str, int, str]  # row, episode, step, text
_WIDTH = MAX_TOOLS + 1  # of the table of tools, `other` last


class End(NamedTuple):
    """What the last line of an episode says; None: nothing."""

    reward: float | None
    success: int | None
    tokens: float | None
    task: str | None
    group: str | None
    stop: str | None


class _Error(NamedTuple):
    text: str
    kind: str
    fault: str
    unknown_tool: bool


class ColumnTable:
    """`add` parts, `end_file` after each file's, then `table`."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.errors: list[_Error] = []
        self.codes = {"task": Codes(), "group": Codes(), "stop": Codes(256), "first_error": Codes(256)}
        self._error_codes: dict[str, int] = {}
        self._ids: list[str] = []
        self._columns: dict[str, list[Array]] = {}
        self._tools = [ToolRow() for _ in range(_WIDTH)]
        self._latency: list[list[Array]] = [[] for _ in range(_WIDTH)]
        self._evidence: dict[str, list[tuple[int, Evidence]]] = {}
        self._offset = 0
        self.nan_rewards = 0
        self.told_by_log = False

    @property
    def num_episodes(self) -> int:
        """E so far."""
        return len(self._ids)

    def tool_code(self, name: str) -> int:
        """The place of a tool; the last one when all are taken."""
        return min(self.names.setdefault(name or NO_NAME, len(self.names)), MAX_TOOLS)

    def error_code(self, text: str) -> int:
        """The place of an error's text, judged once."""
        code = self._error_codes.get(text)
        if code is None:
            code = self._error_codes[text] = len(self.errors)
            self.errors.append(
                _Error(text[:EXCERPT], error_kind_of(text), fault_of(text), says_unknown_tool(text))
            )
        return code

    def end_file(self, rows: int) -> None:
        """Rows of the next file come after all of this one."""
        self._offset += rows

    def add(self, part: Part, ids: list[str], ends: dict[int, End]) -> None:
        """Count one part's episodes; `ids` (E,)."""
        if not ids:
            return
        n, calls = len(ids), part.calls
        self._ids += ids
        none = End(None, None, None, None, None, None)
        said = [ends.get(h, none) for h in part.eh.tolist()]
        bad = [i for i, end in enumerate(said) if end.reward is not None and not np.isfinite(end.reward)]
        self.nan_rewards += len(bad)
        self._keep(
            "nan_rewards", [(int(part.first[i]), ids[i], -1, f"reward {said[i].reward}") for i in bad[:50]]
        )
        total = np.array([np.nan if end.tokens is None else end.tokens for end in said])
        failing = calls.error >= 0
        fault = np.array([["unknown", "tool", "policy"].index(e.fault) for e in self.errors] or [0])
        fault = np.where(failing, np.where(calls.parsed, fault[calls.error], 2), 0)
        unknown = failing & np.array([e.unknown_tool for e in self.errors] or [False])[calls.error]
        each = {
            "calls": np.ones(calls.episode.size, bool), "failed": failing, "tool_faults": fault == 1, "bad_arguments": ~calls.parsed,
            "unknown_tools": unknown, "unanswered": ~calls.answered & ~failing,
        }  # fmt: skip
        columns: dict[str, Array] = {
            name: np.bincount(calls.episode, hit, n).astype(np.int64) for name, hit in each.items()
        }
        columns |= {
            "turns": part.turns,
            "void_turns": part.void,
            "empty_answers": part.empty,
            "time": part.time,
            "wrong": part.wrong,
            "wrong_turn": part.wrong_turn,
            "wrong_step": part.wrong_step,
            "version": np.full(n, -1),
            "repeats": part.repeats,
            "schema_errors": np.zeros(n, np.int64),
        }
        loops = np.zeros(n, np.int64)
        loops[list(part.loops)] = [loop.calls for loop, _ in part.loops.values()]
        columns |= {"loop_calls": loops, "first": part.first + self._offset, "duration_s": part.duration_s}
        columns["tokens"] = np.where(np.isfinite(total), total, part.tokens)
        columns["reward"] = np.array([np.nan if end.reward is None else end.reward for end in said])
        columns["success"] = np.array([-1 if end.success is None else end.success for end in said], np.int8)
        columns["truncated"] = np.array([-1 if e.stop is None else is_limit(e.stop) for e in said], np.int8)
        columns["task"] = np.array([self.codes["task"].of(end.task) for end in said], np.int64)
        groups = [group_of(end.group, end.task) for end in said]
        columns["group"] = np.array([self.codes["group"].of(group) for group in groups], np.int64)
        columns["stop"] = np.array([self.codes["stop"].of(end.stop) for end in said], np.int64)
        columns["first_error"] = self._first_errors(calls, failing, n)
        columns["used"], columns["erred"] = self._count_tools(calls, failing, fault, n)
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)
        for name in ("failed", "tool_faults", "bad_arguments", "unknown_tools", "unanswered"):
            self._examples(name, np.flatnonzero(each[name]), calls, ids)
        again = part.again[part.again >= 0]
        self._examples("repeats", again, calls, ids)
        for what, text, places in (
            ("void_turns", "an assistant turn without text or call", part.void_at),
            ("empty_answers", "the last assistant turn is empty", part.empty_at),
        ):
            self._keep(what, [(row, ids[e], step, text) for row, e, step in places])
        rows = [
            (
                int(calls.row[at]),
                ids[e],
                int(calls.step[at]),
                f"{loop.calls} calls in a block of {loop.period}, from {self._text(calls, at)}",
            )
            for e, (loop, at) in list(part.loops.items())[:50]
        ]
        self._keep("loop_calls", rows)

    def _first_errors(self, calls: Calls, failing: Array, n: int) -> Array:
        at = np.flatnonzero(failing)[::-1]
        first = np.full(n, -1)
        first[calls.episode[at]] = at
        found = np.full(n, -1, np.int64)
        order = np.flatnonzero(first >= 0)
        for i in order[np.argsort(calls.row[first[order]])].tolist():
            call = first[i]
            found[i] = self.codes["first_error"].of(
                f"{self._tool(calls.tool[call])}: {self.errors[calls.error[call]].kind}"
            )
        return found

    def _count_tools(self, calls: Calls, failing: Array, fault: Array, n: int) -> tuple[Array, Array]:
        """(E, T) used and erred; adds to the tools' rows."""
        tool = np.minimum(calls.tool, MAX_TOOLS)
        cell = calls.episode * _WIDTH + tool
        c = np.bincount(cell, minlength=n * _WIDTH).reshape(n, _WIDTH)
        f = np.bincount(cell, failing, n * _WIDTH).reshape(n, _WIDTH).astype(np.int64)
        for place in np.flatnonzero(c.sum(axis=0)).tolist():
            row, own, bad = self._tools[place], c[:, place], f[:, place]
            row.calls, row.failed = row.calls + int(own.sum()), row.failed + int(bad.sum())
            row.episodes += int((own > 0).sum())
            row.sum_ff, row.sum_fc, row.sum_cc = (
                row.sum_ff + int(bad @ bad),
                row.sum_fc + int(bad @ own),
                row.sum_cc + int(own @ own),
            )
            mine = (tool == place) & failing
            for code, count in zip(*np.unique(calls.error[mine], return_counts=True), strict=True):
                error = self.errors[code]
                full = error.kind not in row.kinds and len(row.kinds) >= _MAX_KINDS
                row.kinds[OTHER if full else error.kind] += int(count)
            names = ("unknown", "tool", "policy")
            row.faults += Counter(
                {names[k]: int(v) for k, v in zip(*np.unique(fault[mine], return_counts=True), strict=True)}
            )
            timed = calls.latency[tool == place]
            self._latency[place].append(timed[np.isfinite(timed)].astype(np.float32))
        return c > 0, f > 0

    def _examples(self, what: str, places: Array, calls: Calls, ids: list[str]) -> None:
        """Keep the first ones; of failed calls also the first of each tool."""
        places = places[np.argsort(calls.row[places], kind="stable")]
        self._keep(what, self._rows(places[:_LOOKED_AT], calls, ids))
        if what == "failed":
            for tool in np.unique(calls.tool[places]).tolist():
                mine = places[calls.tool[places] == tool][:_LOOKED_AT]
                self._keep(f"failed/{self._tool(tool)}", self._rows(mine, calls, ids))

    def _rows(self, places: Array, calls: Calls, ids: list[str]) -> list[_Row]:
        return [
            (int(calls.row[i]), ids[calls.episode[i]], int(calls.step[i]), self._text(calls, i))
            for i in places.tolist()
        ]

    def _text(self, calls: Calls, at: int) -> str:
        code = int(calls.error[at])
        came = self.errors[code].text if code >= 0 else "a result" if calls.answered[at] else "no result"
        return f"{self._tool(calls.tool[at])}(…) -> {came}"

    def _tool(self, code: int) -> str:
        names = list(self.names)
        return names[code] if code < min(len(names), MAX_TOOLS) else OTHER

    def _keep(self, what: str, rows: list[_Row]) -> None:
        kept = self._evidence.setdefault(what, [])
        kept += [(row + self._offset, Evidence(episode, step, text)) for row, episode, step, text in rows]
        kept.sort(key=lambda item: item[0])
        one_each = {item[1].episode: item for item in reversed(kept)}
        self._evidence[what] = sorted(one_each.values(), key=lambda item: item[0])[:MAX_EVIDENCE]

    def table(self) -> TraceTable:
        """The table, episodes in the order of their first lines."""
        empty: dict[str, Any] = {name: np.zeros(0) for name in ("first", "used", "erred")}
        columns: dict[str, Any] = {
            name: np.concatenate(parts) for name, parts in self._columns.items()
        } or empty
        order = np.argsort(columns.pop("first"), kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        names = [*list(self.names)[:MAX_TOOLS], *([OTHER] if len(self.names) > MAX_TOOLS else [])]
        tools: dict[str, ToolRow] = {}
        used, erred = columns["used"], columns["erred"]
        for place, name in enumerate(names):
            row = tools[name] = self._tools[place]
            seconds = np.concatenate(self._latency[place]) if self._latency[place] else np.zeros(0)
            row.timed = seconds.size
            if seconds.size:
                row.p50, row.p95, row.p99 = (float(q) for q in np.quantile(seconds, [0.5, 0.95, 0.99]))
            places = np.flatnonzero(used[:, place])
            row.first, row.last = int(places[0]), int(places[-1])
        width = len(names)
        ints: dict[str, Any] = {name: columns.get(name, np.zeros(0, np.int64)) for name in (*COUNTS, *_INTS)}
        floats: dict[str, Any] = {
            name: columns.get(name, np.zeros(0)) for name in ("reward", "tokens", "duration_s", "time")
        }
        return TraceTable(
            ids=[self._ids[i] for i in order.tolist()], counts={name: ints[name] for name in COUNTS}, **floats,
            **{name: ints[name] for name in _INTS},
            tasks=list(self.codes["task"]), groups=list(self.codes["group"]), stops=list(self.codes["stop"]), first_errors=list(self.codes["first_error"]), tools=tools,
            tool_names=names, used=used[:, :width] if used.ndim == 2 else np.zeros((0, 0), bool),
            erred=erred[:, :width] if erred.ndim == 2 else np.zeros((0, 0), bool), nan_rewards=self.nan_rewards,
            sources=[""] * len(self._ids), evidence={what: [e for _, e in kept] for what, kept in self._evidence.items() if kept},
            told_by_log=self.told_by_log, engine="columns",
        )  # fmt: skip
