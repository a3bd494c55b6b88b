"""Calls of whole episodes: what answered each, which repeat one another, which go round in circles.

Shape letters: R rows in the order of episode and step, E episodes, C calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.traces.columnar.extract import Columns
from trimtab.traces.columnar.sql import CALL, PARSE_ERROR, RESULT
from trimtab.traces.table.loops import Loop, longest_loop
from trimtab.typing import Array

MIX = tuple(
    np.array(m, np.uint64)
    for m in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
)


@dataclass
class Calls:
    """(C,) episode (place in the part), tool, row, step, error code (-1: none), latency (nan), answered, parsed, number of the
    assistant turn it belongs to."""

    episode: Array
    tool: Array
    row: Array
    step: Array
    error: Array
    latency: Array
    answered: Array
    parsed: Array
    turn: Array


def calls_of(c: Columns, ep: Array, answers: Array, turn: Array) -> tuple[Calls, Array]:
    """The calls with what came of them, and (C,) a key that is equal where calls are identical, result included."""
    kind = c["kind"]
    at = np.flatnonzero((kind == CALL) | (kind == PARSE_ERROR))
    told = answers[at]
    answered = told >= 0
    parse = kind[at] == PARSE_ERROR
    error = np.where(parse, c["err"][at], np.where(answered, c["err"][told], -1))
    gap, given = c["ts"][told] - c["ts"][at], c["latency"][told]
    latency = np.where(np.isfinite(given), given, np.where(gap >= 0, gap, np.nan))
    calls = Calls(
        ep[at], c["tool"][at], c["row"][at], whole_steps(c["step"][at]), error, np.where(answered, latency, np.nan), answered,
        ~parse, turn[at],
    )  # fmt: skip
    heard = np.where(answered, c["h"][told], np.uint64(1))
    parts = (calls.episode.astype(np.uint64), calls.tool.astype(np.uint64), c["h"][at], heard)
    key = sum((part * mix for part, mix in zip(parts, MIX, strict=True)), np.zeros(at.size, np.uint64))
    return calls, key ^ (key >> np.uint64(31))


def answers_of(kind: Array, tool: Array, ep: Array, same: Array) -> Array:
    """(R,) the row of the result that answers the call of this row; -1. `same` (R,): is the row before of the same episode?"""
    answer = np.full(kind.size, -1)
    follows = kind == RESULT
    follows[1:] &= same[1:] & (kind[:-1] == CALL) & ((tool[1:] == tool[:-1]) | (tool[1:] < 0))
    follows[:1] = False
    results = np.flatnonzero(follows)
    answer[results - 1] = results
    odd = np.zeros(int(ep[-1]) + 1 if ep.size else 0, bool)
    odd[ep[(kind == RESULT) & ~follows]] = True  # an answer elsewhere: it may be an older call's
    odd[ep[(kind == CALL) & (answer < 0)]] = True  # an open call would take a later answer of its tool
    if odd.any():
        _pair_oddly(np.flatnonzero(odd[ep] & ((kind == CALL) | (kind == RESULT))), kind, tool, ep, answer)
    return answer


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


def identical(calls: Calls, key: Array, n: int) -> tuple[Array, Array, dict[int, tuple[Loop, int]]]:
    """(E,) repeats, (E,) place in the calls of the first that repeats one (-1), and loops; `n` is E."""
    twice = np.zeros(key.size, bool)
    ranked = np.sort(key)
    if (ranked[1:] == ranked[:-1]).any():
        some = np.flatnonzero(np.isin(key, ranked[1:][ranked[1:] == ranked[:-1]]))
        order = some[np.argsort(key[some], kind="stable")]
        twice[order[1:]] = key[order][1:] == key[order][:-1]
    repeats = np.bincount(calls.episode, twice, n).astype(np.int64)
    again = np.full(n, -1)
    places = np.flatnonzero(twice)[::-1]
    again[calls.episode[places]] = places
    loops: dict[int, tuple[Loop, int]] = {}
    start = np.searchsorted(calls.episode, np.arange(n + 1)) if twice.any() else np.zeros(0, np.int64)
    for episode in np.flatnonzero(repeats >= 2).tolist():
        low = int(start[episode])
        loop = longest_loop(key[low : start[episode + 1]].tolist())
        if loop.calls:
            loops[episode] = (loop, low + loop.start)
    return repeats, again, loops


def whole_steps(step: Array) -> Array:
    """Steps as integers; -1 for what is none."""
    return np.where(np.isfinite(step) & (step == np.floor(step)), step, -1).astype(np.int64)
