"""Outcomes of episodes by stop reason, tools called and first error, with intervals; readings of refusals and
first symptoms.

A table to read, not a test: the rows are many and not corrected for it; `trace_contrasts` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.traces.builder import Maker, Measured
from trimtab.traces.table.first_symptom import SYMPTOMS
from trimtab.traces.table.types import Evidence, TraceTable

_MAX_ROWS = 12
_NOT_THE_CAUSE = "; where trouble shows, in 20 % of annotated failures the mistake itself"
_TURNS, _ENDS = ("1 or before", "2", "3 or 4", "5 to 8", "9 to 16", "17 and later"), (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Outcome:
    """`episodes` of a kind, and the share of those with a known outcome that are solved; nan where none is
    known."""

    by: str
    name: str
    episodes: int
    solved: float
    low: float
    high: float


def outcomes(table: TraceTable, solved: npt.NDArray[Any]) -> Iterator[Outcome]:
    """Rows by stop reason, tool called, first error, and kind and turn of the first visible symptom; the
    most frequent first, twelve of each."""
    maker = Maker(table)
    yield from _coded(maker, "stop reason", [*table.stops, "(none given)"], table.stop, solved)
    called = np.column_stack([table.used, ~table.used.any(axis=1)])
    names, counts = [*table.tool_names, "(no call)"], called.sum(axis=0)
    for index in np.argsort(-counts, kind="stable")[:_MAX_ROWS] if table.tool_names else ():
        if counts[index]:
            yield _outcome(maker, "tool called", names[index], called[:, index], solved)
    errors = [*table.first_errors, "(no error)"]
    yield from _coded(maker, "first error", errors, table.first_error, solved)
    if (table.symptom >= 0).any():
        turn = np.where(table.symptom < 0, -1, np.searchsorted(_ENDS, table.symptom_turn))
        yield from _coded(maker, "first visible symptom", [*SYMPTOMS, "(none)"], table.symptom, solved)
        yield from _coded(maker, "assistant turn of the first symptom", [*_TURNS, "(none)"], turn, solved)


def _coded(
    maker: Maker, by: str, names: list[str], codes: npt.NDArray[Any], solved: npt.NDArray[Any]
) -> Iterator[Outcome]:
    """Rows of a column of codes (E,); -1 is the last of the names. One name says nothing."""
    filled = np.where(codes < 0, len(names) - 1, codes)
    counts = np.bincount(filled, minlength=len(names))
    for index in np.argsort(-counts, kind="stable")[:_MAX_ROWS] if len(names) > 1 else ():
        if counts[index]:
            yield _outcome(maker, by, names[index], filled == index, solved)


def _outcome(maker: Maker, by: str, name: str, here: npt.NDArray[Any], solved: npt.NDArray[Any]) -> Outcome:
    known = here & (solved >= 0)
    reading = maker.share(
        "traces/solved_frac", (known & (solved == 1)) * 1.0, known * 1.0, maker.clusters
    ).reading
    return Outcome(by, name, int(here.sum()), reading.value, reading.low, reading.high)


def word_readings(maker: Maker) -> Iterator[Measured]:
    """Shares of episodes; what a text is taken for is a rule of thumb (`traces.text_marks`)."""
    table = maker.table
    spoken = (table.counts["turns"] > 0) * 1.0
    for key, name in (
        ("traces/empty_answer_frac", "empty_answers"),
        ("traces/refusal_frac", "refusals"),
        ("traces/switch_frac", "switches"),
    ):
        column = table.counts[name] if name in table.counts else table.marks[name]
        evidence = table.evidence.get(name)
        yield maker.share(
            key, (column > 0) * spoken, spoken, maker.clusters, "no assistant turn", evidence, "episodes"
        )


def first_symptoms(maker: Maker, solved: npt.NDArray[Any]) -> Iterator[Measured]:
    """The share of failed episodes with a visible symptom, and in which turn the first one stands."""
    table = maker.table
    failed = solved == 0
    hit = failed & (table.symptom >= 0)
    examples = []
    for i in np.flatnonzero(hit)[:5]:
        turn = f"assistant turn {table.symptom_turn[i]} of {table.counts['turns'][i]}"
        text = f"{SYMPTOMS[table.symptom[i]]} in {turn}"
        examples.append(Evidence(table.ids[i], int(table.symptom_step[i]), text, table.sources[i]))
    kinds = np.bincount(table.symptom[hit], minlength=len(SYMPTOMS))
    how = ", ".join(f"{count:,} x {kind}" for kind, count in zip(SYMPTOMS, kinds, strict=True) if count)
    where = f"; the median in assistant turn {np.median(table.symptom_turn[hit]):g}" if hit.any() else ""
    yield maker.share(
        "traces/symptom_frac", hit * 1.0, failed * 1.0, maker.clusters,
        "no episode is known to have failed", examples,
        f"failed episodes{': first ' if how else ''}{how}{where}{_NOT_THE_CAUSE if how else ''}",
    )  # fmt: skip
