"""Whole episodes' narrow columns to per-episode numbers: vectorised, but for the odd ones.

Shape letters: R rows in the order of episode and step, E episodes, C calls. Episodes whose results do not directly follow
their calls (parallel calls, orphans) are paired by a plain loop, with the words of `traces.steps`: a result answers the oldest
open call of its tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.traces.columnar.calls import MIX, Calls, answers_of, calls_of, identical, whole_steps
from trimtab.traces.columnar.extract import Columns
from trimtab.traces.columnar.language import switches
from trimtab.traces.columnar.order import apart, in_step_order
from trimtab.traces.columnar.sql import (
    CALL,
    END,
    MESSAGE,
    PARSE_ERROR,
    REFUSAL,
    RESULT,
    SYSTEM,
    UNREAD,
    USER,
    VOID,
)
from trimtab.traces.table.loops import Loop
from trimtab.typing import Array

_ENDS = ("reward", "odd_reward", "success", "total", "cost", "task", "group", "stop")


@dataclass
class Part:
    """`eh`, `first`, `ids`, `run`, `prompt` (E,): hash of the id, first row, the id (None: no row of it says), which of that id, what stands for what was asked
    (`traces.asked`; 0: nothing). `ends`: (E,) each, of the last end.
    `marks`: column -> (E,) how many turns; `marked`: row, episode and step of the first ones, and code of the words or name of the script.
    `orphans`: results that answer no call. `endless`: episodes without an end, `unread`: with a success that is none. `loops`: episode -> its loop and the place of its first call in `calls`. `told`: did a field call any call failed?"""

    eh: Array
    first: Array
    ids: Array
    run: Array
    prompt: Array
    ends: Columns
    turns: Array
    tokens: Array
    duration_s: Array
    time: Array
    wrong: tuple[Array, Array, Array]
    repeats: Array
    again: Array
    marks: dict[str, Array]
    marked: dict[str, list[tuple[int, int, int, Any]]]
    loops: dict[int, tuple[Loop, int]]
    calls: Calls
    moved: int
    copies: int
    orphans: int
    endless: int
    unread: int
    told: bool


def named(ids: Iterable[object], run: Array) -> list[str]:
    """(E,) ids, those of episodes that began anew as `Identities` names them."""
    return [f"{name}#{at + 1}" if at else str(name) for name, at in zip(ids, run.tolist(), strict=True)]


def part_of(c: Columns, ep: Array) -> Part:
    """The numbers of episodes that are all here, and `together`; at least one."""
    names = _names(c, ep)
    c, ep, dropped = apart(c, ep)
    c, ep, moved, copies = in_step_order(c, ep)
    starts = np.flatnonzero(np.r_[True, ep[1:] != ep[:-1]])
    ids, run = names[c["of"][starts]], c["run"][starts]
    n, first = starts.size, np.minimum.reduceat(c["row"], starts)
    duration, time = _times(_seconds(c["ts"]), starts)
    ends = _last(c["kind"] == END, ep, n)
    said = {name: c[name][ends] for name in _ENDS}
    for name, none in (("reward", np.nan), ("odd_reward", False), ("success", -1), ("total", np.nan), ("cost", np.nan), ("task", None), ("group", None), ("stop", None)):  # fmt: skip
        said[name][ends < 0] = none
    unread = said["success"] == UNREAD
    said["success"][unread] = -1
    _fill_tasks(said, c, ep)
    tokens, prompt = _tokens(c, ep, n), _prompts(c, ep, n)
    eh = c["eh"][starts]
    keep = np.flatnonzero(c["kind"] != END)
    c = {
        name: c[name][keep]
        for name in ("kind", "tool", "row", "step", "err", "h", "ts", "latency", "scripts", "told")
    }
    c["ts"], ep = _seconds(c["ts"]), ep[keep]
    kind, same = c["kind"], np.r_[False, ep[1:] == ep[:-1]] if ep.size else np.zeros(0, bool)
    message = (kind == MESSAGE) | (kind == VOID) | (kind == REFUSAL)
    calling = (kind == CALL) | (kind == PARSE_ERROR)
    follows = np.r_[False, (message | calling)[:-1]] & same  # an assistant's word or call
    opened = message | (calling & ~follows)
    alone = ~(np.r_[calling[1:], False] & np.r_[same[1:], False])  # no call belongs to it
    void, refusal = (kind == VOID) & alone, (kind == REFUSAL) & alone
    turns = np.bincount(ep, opened, n).astype(np.int64)
    turn = np.cumsum(opened) - (np.cumsum(turns) - turns)[ep]
    silent = void & (turn == turns[ep])
    answers = answers_of(kind, c["tool"], ep, same)
    orphans = int((kind == RESULT).sum() - (answers >= 0).sum())
    told = bool(c["told"][answers[answers >= 0]].any())
    calls, keys = calls_of(c, ep, answers, turn)
    switched, to = switches(_heard(c["scripts"], answers), message, ~calling & (kind != RESULT), ep)
    rows: dict[str, Array] = {
        name: np.flatnonzero(hit)
        for name, hit in (("void_turns", void), ("empty_answers", silent), ("refusals", refusal))
    }
    rows["switches"] = switched
    marked: dict[str, list[tuple[int, int, int, Any]]] = {
        name: [(int(c["row"][i]), int(ep[i]), _step(c["step"][i]), int(c["err"][i])) for i in at[:50]]
        for name, at in rows.items()
    }
    marked["switches"] = [(*at[:3], script) for at, script in zip(marked["switches"], to, strict=False)]
    marks = {name: np.bincount(ep[at], minlength=n) for name, at in rows.items()}
    repeats, again, loops = identical(calls, keys, n)
    wrong = _first_wrong(calls, again, np.column_stack([ep[void], turn[void], c["step"][void]]), n)
    return Part(
        eh, first, ids, run, prompt, said, turns, tokens, duration, time, wrong, repeats, again, marks, marked, loops,
        calls, moved, copies + dropped, orphans, int((ends < 0).sum()), int(unread.sum()), told,
    )  # fmt: skip


def _fill_tasks(said: Columns, c: Columns, ep: Array) -> None:
    """Task and group of episodes whose end names none: of the last other row that does; then the group stands for the task."""
    for name in ("task", "group"):
        missing = said[name] == None  # noqa: E711
        if missing.any():
            rows = _last(c[f"has_{name}"] & (c["kind"] != END), ep, missing.size)
            fill = missing & (rows >= 0)
            said[name][fill] = c[name][rows[fill]]
    said["task"] = np.where(said["task"] == None, said["group"], said["task"])  # noqa: E711


def _heard(scripts: Array, answers: Array) -> Array:
    """Scripts with those of results at the place of their calls, where the readers have them."""
    if not (scripts > 1).any():
        return scripts
    calls = np.flatnonzero(answers >= 0)
    found: Array = scripts.copy()
    found[answers[calls]] = 0
    found[calls] |= scripts[answers[calls]]
    return found


def _names(c: Columns, ep: Array) -> Array:
    """(E,) the id, by the last row that says it; None for none."""
    rows = _last(c["has_name"], ep, int(ep[-1]) + 1)
    found: Array = c["name"][rows]
    found[rows < 0] = None
    return found


def _last(hit: Array, ep: Array, n: int) -> Array:
    """(E,) the last row of each episode that is hit; -1 for none."""
    found = np.full(n, -1)
    at = np.flatnonzero(hit)
    found[ep[at]] = at
    return found


def _seconds(ts: Array) -> Array:
    """Times as `values.as_time` has them; nan unknown."""
    finite, large = np.isfinite(ts), np.abs(ts)
    if (large >= 1e12).any():  # nano, micro, milli
        ts = ts / np.select([large >= 1e18, large >= 1e15, large >= 1e12], [1e9, 1e6, 1e3], 1.0)
    return ts if finite.all() else np.where(finite, ts, np.nan)


def _tokens(c: Columns, ep: Array, n: int) -> Array:
    """(E,) sum of the whole numbers that steps, ends aside, say; nan where none does."""
    said = c["tokens"]
    known = np.isfinite(said) & (c["kind"] != END) & (said == np.floor(said))
    tokens = np.bincount(ep, np.where(known, said, 0.0), n)
    tokens[np.bincount(ep, known, n) == 0] = np.nan
    return tokens


def _prompts(c: Columns, ep: Array, n: int) -> Array:
    """(E,) one number for the words of a prompt, in their order; 0 where no user said any."""
    found = np.zeros(n, np.uint64)
    rows = np.flatnonzero(((c["kind"] == USER) | (c["kind"] == SYSTEM)) & (c["h"] != 0))
    if not rows.size:
        return found
    mine = ep[rows]
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]])
    place = np.arange(rows.size) - np.repeat(starts, np.diff(np.r_[starts, rows.size]))
    mixed = (c["h"][rows] ^ (place.astype(np.uint64) * MIX[0])) * MIX[1]
    found[mine[starts]] = np.add.reduceat(mixed ^ (mixed >> np.uint64(29)), starts) | np.uint64(1)
    found[np.bincount(mine, c["kind"][rows] == USER, n) == 0] = 0
    return found


def _first_wrong(calls: Calls, again: Array, void: Array, n: int) -> tuple[Array, Array, Array]:
    """(E,) kind, turn and step of the first failed or repeated call or void turn; `void` (V, 3): episode, turn and step of each."""
    bad = np.flatnonzero(calls.error >= 0)
    twice = again[again >= 0]
    place = np.concatenate([bad, twice])
    episode = np.concatenate([calls.episode[place], void[:, 0]]).astype(np.int64)
    turn = np.concatenate([calls.turn[place], void[:, 1]]).astype(np.int64)
    step = np.concatenate([calls.step[place], whole_steps(void[:, 2])]).astype(np.int64)
    kind = np.repeat([0, 1, 2], [bad.size, twice.size, len(void)])
    within = np.concatenate([place, np.zeros(len(void), np.int64)])  # a void turn has no call to come before
    order = np.lexsort((kind, within, turn, episode))[::-1]
    found = [np.full(n, -1, np.int64) for _ in range(3)]
    for column, values in zip(found, (kind, turn, step), strict=True):
        column[episode[order]] = values[order]
    return found[0], found[1], found[2]


def _times(ts: Array, starts: Array) -> tuple[Array, Array]:
    """(E,) seconds from an episode's first known time to its last known one, and the first; nan without any."""
    known = np.isfinite(ts)
    place = np.arange(ts.size)
    first = np.minimum.reduceat(np.where(known, place, ts.size), starts)
    last = np.maximum.reduceat(np.where(known, place, -1), starts)
    took, began = np.full(starts.size, np.nan), np.full(starts.size, np.nan)
    some = last >= 0
    began[some] = ts[first[some]]
    took[some] = ts[last[some]] - began[some]
    return took, began


def _step(step: float) -> int:
    return int(step) if np.isfinite(step) and step == int(step) else -1
