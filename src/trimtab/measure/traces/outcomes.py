"""How do episodes end, by stop reason, by the tools they call and by their first error? Shares solved, with intervals.

A table to read, not a test: the rows are many and not corrected for it; `trace_contrasts` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.traces.builder import Maker
from trimtab.traces.table.first_error import WRONGS
from trimtab.traces.table.types import TraceTable

_MOST = 12
_TURNS, _ENDS = ("1 or before", "2", "3 or 4", "5 to 8", "9 to 16", "17 and later"), (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Outcome:
    """`episodes` of a kind, and the share of those with a known outcome that are solved; nan where none is known."""

    by: str
    name: str
    episodes: int
    solved: float
    low: float
    high: float


def outcomes(table: TraceTable, solved: npt.NDArray[Any]) -> Iterator[Outcome]:
    """Rows by stop reason, tool called, first error, and kind and turn of what first went wrong; the most frequent first, twelve of each."""
    maker = Maker(table)
    kinds: list[tuple[str, list[str], npt.NDArray[Any]]] = [
        ("stop reason", [*table.stops, "(none given)"], _one_hot(table.stop, len(table.stops))),
        (
            "tool called",
            [*table.tool_names, "(no call)"],
            np.column_stack([table.used, ~table.used.any(axis=1)]),
        ),
        (
            "first error",
            [*table.first_errors, "(no error)"],
            _one_hot(table.first_error, len(table.first_errors)),
        ),
        ("went wrong first by", [*WRONGS, "(nothing)"], _one_hot(table.wrong, len(WRONGS))),
        (
            "went wrong first in assistant turn",
            [*_TURNS, "(never)"],
            _one_hot(np.where(table.wrong < 0, -1, np.searchsorted(_ENDS, table.wrong_turn)), len(_TURNS)),
        ),
    ]
    for by, names, member in kinds:
        counts = member.sum(axis=0)
        if len(names) == 1 or (by.startswith("went") and not counts[:-1].any()):
            continue
        for place in np.argsort(-counts, kind="stable")[:_MOST]:
            here = member[:, place]
            if counts[place]:
                yield _outcome(maker, by, names[place], here, solved)


def _one_hot(codes: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    found: npt.NDArray[np.bool_] = np.where(codes < 0, size, codes)[:, None] == np.arange(size + 1)
    return found


def _outcome(maker: Maker, by: str, name: str, here: npt.NDArray[Any], solved: npt.NDArray[Any]) -> Outcome:
    known = here & (solved >= 0)
    reading = maker.share(
        "traces/solved_frac", (known & (solved == 1)) * 1.0, known * 1.0, maker.clusters
    ).reading
    return Outcome(by, name, int(here.sum()), reading.value, reading.low, reading.high)
