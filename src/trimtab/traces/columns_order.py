"""Rows in the order the checks read them: an episode's one after the other, by step, each step once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.traces.columns_rows import Columns

__all__ = ["in_step_order", "together"]

Array = npt.NDArray[Any]
_SAME = ("kind", "tool", "h", "ts", "tokens", "err")  # what copies of a step share


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
    keep[by_step] = _fresh({name: c[name][by_step] for name in ("step", *_SAME)}, ep[by_step])
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
        row = tuple(str(c[name][i]) for name in _SAME)
        keep[i] = row not in seen
        seen.add(row)
    return keep
