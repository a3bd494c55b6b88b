"""Refusals and changes of script as `text_marks` tells them, in columns.

DuckDB looks for Latin letters. A text with letters of another script comes out and is counted here, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from trimtab.traces.table.language import MIN_LETTERS, SCRIPTS
from trimtab.typing import Array

_BATCH = 2**19  # characters counted at a time
_NAMES = np.array(list(SCRIPTS))


def scripts_in(latin: Array, texts: Array, rows: Array, spoken: Array) -> Array:
    """(R,) bits of the scripts of each row's words, in the order of SCRIPTS.

    `latin` (R,): does DuckDB say that Latin, the first, is one? `texts` (R,): words with letters of others, at `rows`. `spoken` (R,): are they
    the assistant's own, which must be MIN_LETTERS?
    """
    found = latin.astype(np.uint16)
    bits = np.uint16(1) << np.arange(len(SCRIPTS), dtype=np.uint16)
    for some in _batches(rows, texts):
        sizes = [len(texts[row]) for row in some.tolist()]
        codes = np.frombuffer("".join(texts[some]).encode("utf-32-le", "surrogatepass"), "<u4")
        cells = (
            np.repeat(np.arange(some.size) * (len(SCRIPTS) + 1), sizes) + _places()[np.minimum(codes, 0xFFFF)]
        )
        counts = np.bincount(cells, minlength=some.size * (len(SCRIPTS) + 1)).reshape(some.size, -1)[:, :-1]
        least = np.where(spoken[some], MIN_LETTERS, 1)
        found[some] |= ((counts >= least[:, None]) * bits)[:, 1:].sum(axis=1, dtype=np.uint16)
    return found


def _batches(rows: Array, texts: Array) -> Iterator[Array]:
    start = size = 0
    for i, row in enumerate(rows.tolist()):
        size += len(texts[row])
        if size >= _BATCH:
            yield rows[start : i + 1]
            start, size = i + 1, 0
    if start < rows.size:
        yield rows[start:]


@cache
def _places() -> Array:
    """(65536,) place in SCRIPTS of each character, the one behind the last for none."""
    found = np.full(2**16, len(SCRIPTS), np.int64)
    for place, (_, spans) in enumerate(SCRIPTS.items()):
        for low, high in spans:
            found[low : high + 1] = place
    return found


def switches(scripts: Array, spoken: Array, said: Array, ep: Array) -> tuple[Array, list[str]]:
    """Rows of the assistant with a script that no earlier row of the episode has, while an earlier message has some; and, of each, the
    first such script by name. `scripts`, `spoken` (by the assistant), `said` (in a message), `ep` (R,), episodes one after the other.

    >>> switches(np.array([1, 1, 5]), np.array([False, True, True]), np.ones(3, bool), np.zeros(3, int))
    (array([2]), ['Cyrillic'])
    """
    if not (scripts > 1).any():  # Latin alone: the usual log
        return np.zeros(0, np.int64), []
    some = np.flatnonzero(scripts)
    first = np.full(int(ep[-1]) + 1, scripts.size)
    worded = np.flatnonzero((scripts > 0) & said)[::-1]
    first[ep[worded]] = worded
    fresh = np.zeros((scripts.size, len(SCRIPTS)), bool)
    for place in range(len(SCRIPTS)):
        rows = some[(scripts[some] >> place) & 1 == 1]
        fresh[rows[np.r_[True, ep[rows][1:] != ep[rows][:-1]][: rows.size]], place] = True
    found = np.flatnonzero(fresh.any(axis=1) & spoken & (np.arange(scripts.size) > first[ep]))
    return found, [min(_NAMES[fresh[row]].tolist()) for row in found.tolist()]
