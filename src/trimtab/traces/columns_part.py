"""One part of the narrow columns, whole episodes of it, to per-episode numbers: vectorised, but for the odd ones.

Shape letters: R rows in the order of episode and step, E episodes, C calls. Episodes whose results do not directly follow
their calls (parallel calls, orphans) are paired by a plain loop, with the words of `traces.steps`: a result answers the oldest
open call of its tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.traces.columns_scan import CALL, END, MESSAGE, PARSE_ERROR, RESULT
from trimtab.traces.loops import Loop, longest_loop

__all__ = ["Calls", "Part", "part_of"]

Array = npt.NDArray[Any]
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], np.uint64)


@dataclass
class Calls:
    """(C,) episode (place in the part), tool, row in the file, step, error code (-1: none), latency (nan), answered, parsed,
    number of the assistant turn it belongs to."""

    episode: Array
    tool: Array
    row: Array
    step: Array
    error: Array
    latency: Array
    answered: Array
    parsed: Array
    turn: Array


@dataclass
class Part:
    """`eh`, `first` (E,): hash of the id and first row. `loops`: episode -> its loop and the place of its first call in `calls`."""

    eh: Array
    first: Array
    turns: Array
    tokens: Array
    duration_s: Array
    time: Array
    empty: Array
    wrong: Array
    wrong_turn: Array
    wrong_step: Array
    repeats: Array
    again: Array
    void: Array
    void_at: list[tuple[int, int, int]]
    empty_at: list[tuple[int, int, int]]
    loops: dict[int, tuple[Loop, int]]
    calls: Calls
    moved: int
    copies: int


def part_of(c: dict[str, Array]) -> Part:
    """The part's rows `c`, in the file's order: eh, row, step, kind, tool (code), ah, rh, ts, latency, tokens, blank, err (code)."""
    order = np.argsort(c["eh"], kind="stable")
    c = {name: column[order] for name, column in c.items()}
    c, ep, moved, copies = _sorted(c)
    starts = np.flatnonzero(np.r_[True, ep[1:] != ep[:-1]]) if ep.size else np.zeros(0, np.int64)
    n = starts.size
    first = np.minimum.reduceat(c["row"], starts) if n else starts
    duration, time = _times(c["ts"], starts)
    spoken = np.where((c["kind"] != END) & (c["tokens"] == np.floor(c["tokens"])), c["tokens"], np.nan)
    tokens = np.bincount(ep, np.nan_to_num(spoken), n)
    tokens[np.bincount(ep, np.isfinite(spoken), n) == 0] = np.nan
    eh = c["eh"][starts]
    keep = c["kind"] != END
    c, ep = {name: column[keep] for name, column in c.items()}, ep[keep]
    kind, same = c["kind"], np.r_[False, ep[1:] == ep[:-1]]
    before = np.where(same, np.r_[np.int8(-1), kind[:-1]], -1)
    after = np.where(np.r_[same[1:], False], np.r_[kind[1:], np.int8(-1)], -1)
    calling = (kind == CALL) | (kind == PARSE_ERROR)
    opens = calling & ~np.isin(before, (MESSAGE, CALL, PARSE_ERROR))
    void = (kind == MESSAGE) & c["blank"] & ~np.isin(after, (CALL, PARSE_ERROR))
    opened = (kind == MESSAGE) | opens
    turns = np.bincount(ep, opened, n).astype(np.int64)
    turn = np.cumsum(opened) - (np.cumsum(turns) - turns)[ep]
    silent = void & (turn == turns[ep])
    empty = np.bincount(ep, silent, n).astype(np.int64)
    void_at, empty_at = (
        [(int(c["row"][i]), int(ep[i]), _step(c["step"][i])) for i in np.flatnonzero(hit)[:50]]
        for hit in (void, silent)
    )
    calls, heard = _calls(c, ep, before, turn)
    repeats, again, loops = _identical(c, calls, heard, n)
    wrong = _first_wrong(calls, again, np.column_stack([ep[void], turn[void], _steps(c["step"][void])]), n)
    return Part(
        eh, first, turns, tokens, duration, time, empty, *wrong, repeats, again, np.bincount(ep, void, n).astype(np.int64), void_at, empty_at, loops, calls, moved, copies,
    )  # fmt: skip


def _sorted(c: dict[str, Array]) -> tuple[dict[str, Array], Array, int, int]:
    """Rows by episode and step, copies dropped; the episode's place of each row; how many were moved, how many dropped."""
    ep = np.cumsum(np.r_[False, c["eh"][1:] != c["eh"][:-1]]) if c["eh"].size else np.zeros(0, np.int64)
    step, place = c["step"], np.arange(ep.size)
    unknown = np.isnan(step)
    if unknown.any():  # an episode with a step missing keeps the file's order
        step = np.where((np.bincount(ep, unknown) > 0)[ep], 0.0, step)
    if not ((ep[1:] == ep[:-1]) & (c["step"][1:] <= c["step"][:-1])).any() and not unknown.any():
        return c, ep, 0, 0
    by_step = np.lexsort((place, c["step"], ep))
    keep = np.zeros(ep.size, bool)
    keep[by_step] = _fresh({name: column[by_step] for name, column in c.items()}, ep[by_step])
    c, ep, step = {name: column[keep] for name, column in c.items()}, ep[keep], step[keep]
    moved = int(((step[1:] < step[:-1]) & (ep[1:] == ep[:-1])).sum())
    order = np.lexsort((np.arange(ep.size), step, ep))
    return {name: column[order] for name, column in c.items()}, ep[order], moved, int((~keep).sum())


def _fresh(c: dict[str, Array], ep: Array) -> Array:
    """(R,) False for a row that repeats an earlier one of its step, in all that is kept of it."""
    keep = np.ones(ep.size, bool)
    known = np.r_[False, (ep[1:] == ep[:-1]) & (c["step"][1:] == c["step"][:-1])]
    names = ("kind", "tool", "ah", "rh", "ts", "tokens", "blank", "err")
    seen: set[tuple[Any, ...]] = set()
    for i in np.flatnonzero(known | np.r_[known[1:], False]):
        if not known[i]:
            seen = set()
        row = tuple(str(c[name][i]) for name in names)
        keep[i] = row not in seen
        seen.add(row)
    return keep


def _first_wrong(calls: Calls, again: Array, void: Array, n: int) -> tuple[Array, Array, Array]:
    """(E,) kind, turn and step of the first failed or repeated call or void turn; `void` (V, 3): episode, turn and step of each."""
    bad = np.flatnonzero(calls.error >= 0)
    twice = again[again >= 0]
    place = np.concatenate([bad, twice])
    episode = np.concatenate([calls.episode[place], void[:, 0]]).astype(np.int64)
    turn = np.concatenate([calls.turn[place], void[:, 1]]).astype(np.int64)
    step = np.concatenate([calls.step[place], void[:, 2]]).astype(np.int64)
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
    first = np.minimum.reduceat(np.where(known, place, ts.size), starts) if starts.size else starts
    last = np.maximum.reduceat(np.where(known, place, -1), starts) if starts.size else starts
    took, began = np.full(starts.size, np.nan), np.full(starts.size, np.nan)
    some = last >= 0
    began[some] = ts[first[some]]
    took[some] = ts[last[some]] - began[some]
    return took, began


def _calls(c: dict[str, Array], ep: Array, before: Array, turn: Array) -> tuple[Calls, Array]:
    """The calls with what came of them, and (C,) the hash of what each was told."""
    kind, tool = c["kind"], c["tool"]
    at = np.flatnonzero((kind == CALL) | (kind == PARSE_ERROR))
    answer = np.full(kind.size, -1)
    follows = (kind == RESULT) & (before == CALL)
    follows[1:] &= (tool[1:] == tool[:-1]) | (tool[1:] < 0)
    results = np.flatnonzero(follows)
    answer[results - 1] = results
    odd = np.zeros(int(ep[-1]) + 1 if ep.size else 0, bool)
    odd[ep[(kind == RESULT) & ~follows]] = True  # an answer elsewhere: it may be an older call's
    waiting = (kind == CALL) & (answer < 0)
    odd[ep[waiting]] = True  # an open call would take a later answer of its tool
    if odd.any():
        _pair_oddly(np.flatnonzero(odd[ep] & ((kind == CALL) | (kind == RESULT))), kind, tool, ep, answer)
    told = answer[at]
    answered = told >= 0
    parse = kind[at] == PARSE_ERROR
    error = np.where(parse, c["err"][at], np.where(answered, c["err"][told], -1))
    gap = c["ts"][told] - c["ts"][at]
    latency = np.where(np.isfinite(c["latency"][told]), c["latency"][told], np.where(gap >= 0, gap, np.nan))
    heard = np.where(answered, c["rh"][told], np.uint64(1))
    calls = Calls(
        ep[at],
        tool[at],
        c["row"][at],
        _steps(c["step"][at]),
        error,
        np.where(answered, latency, np.nan),
        answered,
        ~parse,
        turn[at],
    )
    return calls, np.column_stack([ep[at].astype(np.uint64), tool[at].astype(np.uint64), c["ah"][at], heard])


def _pair_oddly(rows: Array, kind: Array, tool: Array, ep: Array, answer: Array) -> None:
    answer[rows] = -1
    pending: list[tuple[int, int]] = []
    current = -1
    for i, what, name, episode in zip(
        rows.tolist(), kind[rows].tolist(), tool[rows].tolist(), ep[rows].tolist(), strict=True
    ):
        if episode != current:
            pending, current = [], episode
        if what == CALL:
            pending.append((i, name))
            continue
        for place, (call, wanted) in enumerate(pending):
            if name in (-1, wanted):
                answer[call] = i
                del pending[place]
                break


def _identical(
    c: dict[str, Array], calls: Calls, parts: Array, n: int
) -> tuple[Array, Array, dict[int, tuple[Loop, int]]]:
    """(E,) repeats, (E,) place in the calls of the first that repeats one (-1), and loops."""
    del c
    key = (parts * _MIX).sum(axis=1, dtype=np.uint64)
    key ^= key >> np.uint64(31)
    order = np.argsort(key, kind="stable")
    twice = np.zeros(key.size, bool)
    twice[order[1:]] = key[order][1:] == key[order][:-1]
    repeats = np.bincount(calls.episode, twice, n).astype(np.int64)
    again = np.full(n, -1)
    places = np.flatnonzero(twice)[::-1]
    again[calls.episode[places]] = places
    loops: dict[int, tuple[Loop, int]] = {}
    start = np.searchsorted(calls.episode, np.arange(n + 1))
    for episode in np.flatnonzero(repeats >= 2).tolist():
        low = int(start[episode])
        loop = longest_loop(key[low : start[episode + 1]].tolist())
        if loop.calls:
            loops[episode] = (loop, low + loop.start)
    return repeats, again, loops


def _steps(step: Array) -> Array:
    return np.where(np.isfinite(step) & (step == np.floor(step)), step, -1).astype(np.int64)


def _step(step: float) -> int:
    return int(step) if np.isfinite(step) and step == int(step) else -1
