"""Steps of episodes that may go on in another shard: held until the file ends, in memory while they are few, else in files.

An episode that ends in a shard and begins there, as most do, is counted with it; that is a guess, and `columns` checks it: an
episode that turns up again is read once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from trimtab.traces.columnar.extract import Columns
from trimtab.traces.columnar.sql import END
from trimtab.traces.table.interning import Codes
from trimtab.typing import Array

_MAX_ROWS = 1_000_000  # held in memory, 150 bytes each
_FILES = 64


def split(c: Columns, ep: Array, never: Array) -> tuple[Columns, Array, Columns]:
    """Rows of the episodes that seem to be here from first to last, with their places, and the others. `never`: hashes of
    episodes of which it is known that they are not. The rows are `together`."""
    if not ep.size:
        return c, ep, c
    starts = np.flatnonzero(np.r_[True, ep[1:] != ep[:-1]])
    ended = np.bincount(ep, c["kind"] == END) > 0
    begins = np.minimum.reduceat(c["step"], starts)
    usual, counts = np.unique(begins[ended & np.isfinite(begins)], return_counts=True)
    whole = ended & (begins == usual[counts.argmax()]) if usual.size else np.zeros(starts.size, bool)
    if never.size:
        whole &= ~np.isin(c["eh"][starts], never)
    here = whole[ep]
    mine, others = np.flatnonzero(here), np.flatnonzero(~here)
    return (
        _taken(c, mine),
        (np.cumsum(whole) - 1)[ep[mine]],
        {name: column[others] for name, column in c.items()},
    )


def _taken(c: Columns, rows: Array) -> Columns:
    """Those rows, without a copy where they follow one another."""
    if rows.size and rows[-1] - rows[0] + 1 == rows.size:
        return {name: column[rows[0] : rows[-1] + 1] for name, column in c.items()}
    return {name: column[rows] for name, column in c.items()}


class Loose:
    """`add` the rows of shards in order; `parts` gives whole episodes. Codes are those of `tools` and `errors`."""

    def __init__(self, folder: Path, max_rows: int = _MAX_ROWS) -> None:
        self.tools, self.errors = Codes(), Codes()
        self._folder, self._max_rows = folder, max_rows
        self._held: list[Columns] = []
        self._hashes: list[Array] = []
        self._num_rows, self._spilled = 0, False

    def add(self, c: Columns, tools: list[str], errors: list[str]) -> None:
        """Rows of one shard, whose codes stand for these texts."""
        for name, codes, texts in (("tool", self.tools, tools), ("err", self.errors, errors)):
            places = np.array([*(codes.of(text) for text in texts), -1])
            c[name] = places[c[name]]
        self._hashes.append(np.unique(c["eh"]))
        self._held.append(c)
        self._num_rows += c["eh"].size
        if self._num_rows > self._max_rows:
            self._spill()

    def hashes(self) -> Array:
        """Of the episodes, each once."""
        return np.unique(np.concatenate(self._hashes)) if self._hashes else np.zeros(0, np.uint64)

    def parts(self) -> Iterator[Columns]:
        """The rows, whole episodes at a time, those of an episode in the file's order."""
        if not self._spilled:
            if self._num_rows:
                yield _joined(self._held)
            return
        self._spill()
        for number in range(_FILES):
            path = self._folder / f"loose{number}"
            with path.open("rb") as file:
                held = []
                while head := file.read(8):
                    held.append(_unpacked(file.read(int.from_bytes(head, "little"))))
            path.unlink()
            if held:
                yield _joined(held)

    def _spill(self) -> None:
        self._spilled = True
        for c in self._held:
            bucket = (c["eh"] >> np.uint64(7)) % np.uint64(_FILES)
            for number in range(_FILES):
                with (self._folder / f"loose{number}").open("ab") as file:
                    if (mine := bucket == number).any():
                        body = _packed({name: column[mine] for name, column in c.items()})
                        file.write(len(body).to_bytes(8, "little") + body)
        self._held, self._num_rows = [], 0


def _packed(c: Columns) -> bytes:
    """Columns as bytes: of text the values, of numbers their memory."""
    return msgspec.msgpack.encode(
        {n: ["", x.tolist()] if x.dtype == object else [x.dtype.str, x.tobytes()] for n, x in c.items()}
    )


def _unpacked(data: bytes) -> Columns:
    found = msgspec.msgpack.decode(data, type=dict[str, tuple[str, Any]])
    return {n: np.frombuffer(x, kind) if kind else np.array(x, object) for n, (kind, x) in found.items()}


def _joined(held: list[Columns]) -> Columns:
    return {name: np.concatenate([c[name] for c in held]) for name in held[0]}
