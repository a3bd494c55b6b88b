"""Rows of plain numbers as tables: a long log held so takes a tenth of the memory of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from trimtab.typing import Float64, Int64

Column = tuple[Int64, Float64]
"""Rows at which a metric is there, ascending, and its values."""


@dataclass(frozen=True)
class Block:
    """Rows of the same keys: `index` (R,) among all rows, `table` (R, K)."""

    keys: tuple[str, ...]
    index: Int64
    table: Float64


def blocks_of(rows: Sequence[dict[str, Any]], first: int) -> list[Block] | None:
    """The rows, of which the first is row `first` of the log; None when a value is not a plain number: null,
    text, a truth value.

    >>> [block] = blocks_of([{"step": 1, "kl": 0.5}, {"step": 2, "kl": 0.25}], 10) or []
    >>> block.keys, block.index.tolist(), block.table.tolist()
    (('step', 'kl'), [10, 11], [[1.0, 0.5], [2.0, 0.25]])
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(tuple(row), []).append(i)
    blocks_found: list[Block] = []
    for keys, index in groups.items():
        cells = list(chain.from_iterable([rows[i].values() for i in index]))
        if not set(map(type, cells)) <= {float, int}:
            return None
        try:
            table = np.array(cells, np.float64).reshape(len(index), len(keys))
        except OverflowError:
            return None
        blocks_found.append(Block(keys, first + np.array(index, np.int64), table))
    return blocks_found


def column_of(blocks: Iterable[Block], key: str) -> Column | None:
    """One key's column; None where no row has it."""
    return joined([(b.index, b.table[:, b.keys.index(key)]) for b in blocks if key in b.keys])


def joined(parts: Sequence[Column]) -> Column | None:
    """Pieces of one column, in any order, as one."""
    if not parts:
        return None
    at = np.concatenate([index for index, _ in parts])
    values = np.concatenate([piece for _, piece in parts])
    if (at[1:] > at[:-1]).all():
        return at, values
    order = np.argsort(at)
    return at[order], values[order]


def rows_of(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """The rows again, every value a float."""
    by_index: dict[int, dict[str, Any]] = {}
    for block in blocks:
        for i, values in zip(block.index.tolist(), block.table.tolist(), strict=True):
            by_index[i] = dict(zip(block.keys, values, strict=True))
    return [by_index[i] for i in sorted(by_index)]


def columns_of_rows(rows: Sequence[tuple[int, Mapping[str, float]]]) -> tuple[Int64, dict[str, Column]]:
    """Steps and columns of rows under our names, one a step, in order."""
    index: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for i, (_, row) in enumerate(rows):
        for name, value in row.items():
            index.setdefault(name, []).append(i)
            values.setdefault(name, []).append(value)
    steps = np.array([step for step, _ in rows], np.int64)
    return steps, {
        name: (np.array(at, np.int64), np.array(values[name], np.float64)) for name, at in index.items()
    }
