"""A log's metrics as arrays: straight off rows that hold plain numbers, one row a step; by way of merged rows otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "columns_of_rows", "plain_columns"]

Int = npt.NDArray[np.int64]
Column = tuple[Int, npt.NDArray[np.float64]]
"""Rows at which a metric is there, ascending, and its values."""


class _Absent:
    """The type of what stands where a row has no such key."""


_ABSENT = _Absent()
_NUMBERS = {float, int}


def plain_columns(
    steps: Sequence[int | None], rows: Sequence[Mapping[str, Any]], mapped: Mapping[str, str]
) -> tuple[Int, dict[str, Column]] | None:
    """Steps and columns of rows in order, one a step, whose values of `mapped` (ours -> theirs) are all plain numbers.

    None where a row must be dropped, moved or merged, or a value is anything else: null, text, a truth value, a list.
    """
    if not set(map(type, steps)) <= {int}:
        return None
    try:
        at = np.array(steps, np.int64)
        if (at[1:] <= at[:-1]).any():
            return None
        found = {ours: _plain(rows, theirs) for ours, theirs in mapped.items()}
    except OverflowError:
        return None
    columns = {ours: column for ours, column in found.items() if column is not None and column[0].size}
    return None if None in found.values() else (at, columns)


def _plain(rows: Sequence[Mapping[str, Any]], key: str) -> Column | None:
    values = [row.get(key, _ABSENT) for row in rows]
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        return np.arange(len(values)), np.array(values, np.float64)
    if not kinds <= _NUMBERS | {_Absent}:
        return None
    there = [i for i, value in enumerate(values) if value is not _ABSENT]
    return np.array(there, np.int64), np.array([values[i] for i in there], np.float64)


def columns_of_rows(rows: Sequence[tuple[int, Mapping[str, float]]]) -> tuple[Int, dict[str, Column]]:
    """The same of rows under our names, one a step, in order."""
    places: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for i, (_, row) in enumerate(rows):
        for name, value in row.items():
            places.setdefault(name, []).append(i)
            values.setdefault(name, []).append(value)
    steps = np.array([step for step, _ in rows], np.int64)
    return steps, {
        name: (np.array(at, np.int64), np.array(values[name], np.float64)) for name, at in places.items()
    }
