"""Rows in the order the checks read them: an episode's one after the other, by step, each step once; what began anew after its end apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.traces.columnar.calls import MIX
from trimtab.traces.columnar.extract import Columns
from trimtab.traces.columnar.sql import CALL, END, MESSAGE, PARSE_ERROR, REFUSAL, RESULT, SYSTEM, USER, VOID
from trimtab.traces.readers.ptt_steps.restarts import COPY, Line, runs_of
from trimtab.typing import Array

_SAME = ("kind", "tool", "h", "ts", "tokens", "err")  # what copies of a step share
_SAME_END = ("reward", "success", "total", "cost", "task", "group", "stop")  # and of an end
_KINDS = {
    CALL: "tool_call", RESULT: "tool_result", PARSE_ERROR: "tool_parse_error", MESSAGE: "assistant_message", VOID: "assistant_message",
    REFUSAL: "assistant_message", END: "episode_end", USER: "user_message", SYSTEM: "system",
}  # fmt: skip


def together(c: Columns) -> tuple[Columns, Array]:
    """Rows with those of an episode one after the other, episodes by their first row; (R,) the episode's place."""
    eh = c["eh"]
    heads = np.flatnonzero(np.r_[True, eh[1:] != eh[:-1]]) if eh.size else np.zeros(0, np.int64)
    _, first, inverse = np.unique(eh[heads], return_index=True, return_inverse=True)
    place = np.empty(first.size, np.int64)
    place[np.argsort(first)] = np.arange(first.size)
    ep = np.repeat(place[inverse], np.diff(np.r_[heads, eh.size]))
    if first.size == heads.size:
        return c, ep
    order = np.argsort(ep.astype(np.uint16) if first.size < 2**16 else ep, kind="stable")  # 16 bits: by radix
    return {name: column[order] for name, column in c.items()}, ep[order]


def apart(c: Columns, ep: Array) -> tuple[Columns, Array, int]:
    """Rows `together`, those of an episode that began anew after its end (`traces.restarts`) behind the first one's; (R,) the place of
    each; how many copies were dropped. New columns: `of`, the place before, and `run`, which of its id it is, from 0."""
    run = np.zeros(ep.size, np.int32)
    starts = np.flatnonzero(np.r_[True, ep[1:] != ep[:-1]])
    ends = np.r_[starts[1:], ep.size]
    first = np.minimum.reduceat(np.where(c["kind"] == END, np.arange(ep.size), ep.size), starts)
    again = first < ends - 1
    rows = np.flatnonzero(again[ep])
    lines, at = _lines({name: c[name][rows] for name in ("step", *_SAME, *_SAME_END)}), 0
    for start, end in zip(starts[again].tolist(), ends[again].tolist(), strict=True):
        run[start:end] = runs_of(lines[at : at + end - start])
        at += end - start
    c = {**c, "of": ep, "run": run}
    if not run.any():
        return c, ep, 0
    order = np.lexsort((run, ep))
    order = order[run[order] != COPY]
    c = {name: column[order] for name, column in c.items()}
    new = (c["of"][1:] != c["of"][:-1]) | (c["run"][1:] != c["run"][:-1])
    return c, np.cumsum(np.r_[0, new]), int(ep.size - order.size)


def _lines(c: Columns) -> list[Line]:
    """Rows as `restarts` compares them."""
    steps, kinds = c["step"].tolist(), c["kind"].tolist()
    times, said = np.isfinite(c["ts"]).tolist(), _said(c).tolist()
    found = []
    for step, kind, timed, words in zip(steps, kinds, times, said, strict=True):
        number, end = None if step != step else int(step), kind == END
        found.append(
            Line(number, _KINDS.get(kind, "other"), end, number is not None or (end and timed), words)
        )
    return found


def _said(c: Columns) -> Array:
    """(R,) one number for all that copies share."""
    found = np.zeros(c["step"].size, np.uint64)
    for name in (*_SAME, *_SAME_END):
        column = c[name]
        if column.dtype == object:
            codes: dict[Any, int] = {}
            column = np.array([codes.setdefault(value, len(codes)) for value in column.tolist()], np.uint64)
        elif column.dtype.kind == "f":
            column = np.where(np.isnan(column), np.nan, column).astype(np.float64).view(np.uint64)
        found = (found ^ column.astype(np.uint64)) * MIX[0]
        found ^= found >> np.uint64(29)
    return found


def in_step_order(c: Columns, ep: Array) -> tuple[Columns, Array, int, int]:
    """Rows by episode and step, copies dropped; the episode's place of each row; how many were moved, how many dropped."""
    step, place = c["step"], np.arange(ep.size)
    unknown = np.isnan(step)
    if not ((ep[1:] == ep[:-1]) & (step[1:] <= step[:-1])).any() and not unknown.any():
        return c, ep, 0, 0
    if unknown.any():  # an episode with a step missing keeps the file's order
        step = np.where((np.bincount(ep, unknown) > 0)[ep], 0.0, step)
    by_step = np.lexsort((place, c["step"], ep))
    keep = np.zeros(ep.size, bool)
    keep[by_step] = _fresh({name: c[name][by_step] for name in ("step", *_SAME, *_SAME_END)}, ep[by_step])
    c, ep, step = {name: column[keep] for name, column in c.items()}, ep[keep], step[keep]
    moved = int(((step[1:] < step[:-1]) & (ep[1:] == ep[:-1])).sum())
    order = np.lexsort((np.arange(ep.size), step, ep))
    return {name: column[order] for name, column in c.items()}, ep[order], moved, int((~keep).sum())


def _fresh(c: Columns, ep: Array) -> Array:
    """(R,) False for a row that repeats an earlier one of its step, in all that is kept of it."""
    keep = np.ones(ep.size, bool)
    known = np.r_[False, (ep[1:] == ep[:-1]) & (c["step"][1:] == c["step"][:-1])]
    seen: set[tuple[Any, ...]] = set()
    for i in np.flatnonzero(known | np.r_[known[1:], False]):
        if not known[i]:
            seen = set()
        names = (*_SAME, *_SAME_END) if c["kind"][i] == END else _SAME
        row = tuple(str(c[name][i]) for name in names)
        keep[i] = row not in seen
        seen.add(row)
    return keep
