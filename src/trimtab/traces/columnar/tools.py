"""What calls did, by tool: the rows of the table of tools, of one shard and added up over shards."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trimtab.traces.columnar.calls import Calls
from trimtab.traces.columnar.spill import Kept, Shelf, loaded, stored
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.kinds import error_kind_of
from trimtab.traces.errors.unknown_tools import says_unknown_tool
from trimtab.traces.table.episode_facts import EXCERPT
from trimtab.traces.table.latency import time_row
from trimtab.traces.table.types import MAX_TOOLS, NO_NAME, OTHER, ToolRow
from trimtab.typing import Array

FAULTS = ("unknown", "tool", "policy")
_MAX_KINDS = 16


class Judged(NamedTuple):
    """What an error's text says; `fault`: place in FAULTS."""

    text: str
    kind: str
    fault: int
    unknown_tool: bool


@lru_cache(maxsize=4096)
def judged(text: str) -> Judged:
    """The error, judged."""
    return Judged(text[:EXCERPT], error_kind_of(text), FAULTS.index(fault_of(text)), says_unknown_tool(text))


class ToolCounts:
    """`places`: tool -> its row; the row after the last is of all that came when there were MAX_TOOLS. `merge` adds another's."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.places: dict[str, int] = {}
        self.rows: list[ToolRow] = []
        self.seconds: list[list[Kept]] = []
        self._shelf = shelf

    @property
    def names(self) -> list[str]:
        """Of the rows."""
        return list(self.places)

    def place(self, name: str) -> int:
        """The row of a tool."""
        name = name or NO_NAME
        if name not in self.places and len(self.places) >= MAX_TOOLS:
            name = OTHER
        place = self.places.setdefault(name, len(self.places))
        if place == len(self.rows):
            self.rows.append(ToolRow())
            self.seconds.append([])
        return place

    def coded(self, calls: Calls, names: list[str]) -> Array:
        """(C,) rows of the calls' tools, whose codes stand for `names`; new ones in the order of their first call."""
        order = np.argsort(calls.row)
        codes, first = np.unique(calls.tool[order], return_index=True)
        places = np.zeros(len(names) + 1, np.int64)
        for code in codes[np.argsort(first)].tolist():
            places[code] = self.place(names[code] if code >= 0 else "")
        return places[calls.tool]

    def count(self, calls: Calls, fault: Array, errors: list[Judged], n: int) -> tuple[Array, Array]:
        """Add n episodes' calls, whose tools are rows here; (E, T) which episodes called each tool, and which failed."""
        width, failing = len(self.rows), calls.error >= 0
        cell = calls.episode * width + calls.tool
        c = np.bincount(cell, minlength=n * width).reshape(n, width)
        f = np.bincount(cell[failing], minlength=n * width).reshape(n, width)
        for place in np.flatnonzero(c.any(axis=0)).tolist():
            row, own, bad, mine = self.rows[place], c[:, place], f[:, place], calls.tool == place
            row.calls, row.failed = row.calls + int(own.sum()), row.failed + int(bad.sum())
            row.episodes += int((own > 0).sum())
            row.sum_ff += int(bad @ bad)
            row.sum_fc += int(bad @ own)
            row.sum_cc += int(own @ own)
            timed = calls.latency[mine]
            self.seconds[place].append(timed[np.isfinite(timed)].astype(np.float32))
            mine &= failing
            for code, count in enumerate(np.bincount(calls.error[mine]).tolist()):
                if count:
                    _add_kind(row, errors[code].kind, count)
                    row.unknown += count * errors[code].unknown_tool
            for code, count in enumerate(np.bincount(fault[mine]).tolist()):
                if count:
                    row.faults[FAULTS[code]] += count
        return c > 0, f > 0

    def merge(self, other: ToolCounts) -> list[int]:
        """Add another's rows; their places here."""
        places = [self.place(name) for name in other.places]
        for place, row, seconds in zip(places, other.rows, other.seconds, strict=True):
            mine = self.rows[place]
            for name in ("calls", "failed", "unknown", "episodes", "sum_ff", "sum_fc", "sum_cc"):
                setattr(mine, name, getattr(mine, name) + getattr(row, name))
            for kind, count in row.kinds.items():
                _add_kind(mine, kind, count)
            mine.faults += row.faults
            self.seconds[place] += [stored(part, self._shelf) for part in seconds]
        return places

    def finished(self, used: Array) -> dict[str, ToolRow]:
        """Rows by name, with quantiles of latency, and the first and last episode of `used` (E, T)."""
        for place, row in enumerate(self.rows):
            seconds = np.concatenate(
                [np.zeros(0, np.float32), *(loaded(part, self._shelf) for part in self.seconds[place])]
            )
            time_row(row, seconds)
            episodes = np.flatnonzero(used[:, place])
            row.first, row.last = int(episodes[0]), int(episodes[-1])
        return dict(zip(self.places, self.rows, strict=True))


def _add_kind(row: ToolRow, kind: str, count: int) -> None:
    full = kind not in row.kinds and len(row.kinds) >= _MAX_KINDS
    row.kinds[OTHER if full else kind] += count
