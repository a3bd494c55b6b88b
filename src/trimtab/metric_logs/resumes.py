"""Rows of an attempt that a resume or a restart superseded, as TRL, verl and Tinker append to one log."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

_MIN_REPEATED = 2
"""Steps that are logged again before the counter's way back is a resume, not one late row."""


def superseded_rows(steps: Sequence[int | None], metrics: Callable[[int], frozenset[str]]) -> dict[int, int]:
    """Return the rows that a later attempt supersedes -> the step at which it took over.

    An attempt begins where the counter goes back and then goes on upwards over at least two steps that were
    logged already, with at least half of their metrics. A late row, and rows that hold other metrics (an
    evaluation logged at the end, a second writer), supersede nothing.

    Args:
        steps: of each row, in the order of the log; None where it has none.
        metrics: index of a row -> names of the metrics it holds.

    Example:
        >>> superseded_rows([0, 1, 2, 3, 1, 2], lambda row: frozenset({"reward"}))
        {1: 1, 2: 1, 3: 1}
    """
    current: dict[int, list[int]] = {}  # step -> its rows, of the attempts that stand
    order: list[int] = []  # the same steps, ascending
    superseded: dict[int, int] = {}
    for segment in _ascending(steps):
        repeated = []
        for step, rows in segment:
            earlier = frozenset[str]().union(*map(metrics, current.get(step, ())))
            again = earlier and earlier & frozenset[str]().union(*map(metrics, rows))
            if again and 2 * len(again) >= len(earlier):
                repeated.append(step)
        if len(repeated) >= _MIN_REPEATED:
            first = bisect_left(order, repeated[0])
            for step in order[first:]:
                superseded |= dict.fromkeys(current.pop(step), repeated[0])
            del order[first:]
        for step, rows in segment:
            if step not in current:
                insort(order, step)
            current.setdefault(step, []).extend(rows)
    return superseded


def _ascending(steps: Sequence[int | None]) -> Iterator[list[tuple[int, list[int]]]]:
    """Stretches over which the counter does not go back: (step, its rows)."""
    segment: list[tuple[int, list[int]]] = []
    numbered = [(step, row) for row, step in enumerate(steps) if step is not None]
    for step, rows in groupby(numbered, key=lambda pair: pair[0]):
        if segment and step < segment[-1][0]:
            yield segment
            segment = []
        segment.append((step, [row for _, row in rows]))
    if segment:
        yield segment
