"""A log's metrics as arrays: straight off rows that hold plain numbers, one row a step; by way of merged rows otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "columns_of_rows", "plain_columns"]

Int = npt.NDArray[np.int64]
Column = tuple[Int, npt.NDArray[np.float64]]
"""Rows at which a metric is there, ascending, and its values."""


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
        return at, _joined(rows, mapped)
    except (OverflowError, _NotPlainError):
        return None


class _NotPlainError(Exception):
    """A value that is no plain number."""


def _joined(rows: Sequence[Mapping[str, Any]], mapped: Mapping[str, str]) -> dict[str, Column]:
    """Columns of the rows, block by block of rows with the same keys."""
    blocks: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(rows):
        blocks.setdefault(tuple(row), []).append(i)
    pieces: dict[str, list[Column]] = {ours: [] for ours in mapped}
    for keys, places in blocks.items():
        cells = list(chain.from_iterable([rows[i].values() for i in places]))
        at, width = np.array(places, np.int64), len(keys)
        wanted = {ours: keys.index(theirs) for ours, theirs in mapped.items() if theirs in keys}
        if set(map(type, cells)) <= _NUMBERS:  # in the order in which they lie in memory
            table = np.array(cells, np.float64).reshape(len(places), width)
            columns = {ours: np.array(table[:, j]) for ours, j in wanted.items()}
        else:
            columns = {ours: _numbers(cells[j::width]) for ours, j in wanted.items()}
        for ours, column in columns.items():
            pieces[ours].append((at, column))
    found: dict[str, Column] = {}
    for ours, parts in pieces.items():
        if len(parts) > 1:
            at, values = (np.concatenate([part[i] for part in parts]) for i in range(2))
            order = np.argsort(at)
            parts[:] = [(at[order], values[order])]
        if parts:
            found[ours] = parts[0]
    return found


def _numbers(cells: list[Any]) -> npt.NDArray[np.float64]:
    if not set(map(type, cells)) <= _NUMBERS:
        raise _NotPlainError
    return np.array(cells, np.float64)


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
