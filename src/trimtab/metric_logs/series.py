"""A log's metrics as arrays: straight off rows that hold plain numbers, one row a step; by way of merged rows otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.metric_logs.formats.column_blocks import Block, Column, blocks_of, column_of
from trimtab.metric_logs.formats.types import RawLog
from trimtab.typing import Int64


def plain_columns(
    steps: Sequence[int | None], raw: RawLog, mapped: Mapping[str, str]
) -> tuple[Int64, dict[str, Column]] | None:
    """Steps and columns (`mapped`: ours -> theirs) of rows in order, one a step, that hold plain numbers there.

    None where a row must be dropped, moved or merged, or a value is anything else: null, text, a truth value, a list.
    """
    if not set(map(type, steps)) <= {int}:
        return None
    try:
        at = np.array(steps, np.int64)
    except OverflowError:
        return None
    if (at[1:] <= at[:-1]).any():
        return None
    blocks = raw.blocks or _picked(raw, mapped)
    if blocks is None:
        return None
    columns = {ours: column_of(blocks, theirs) for ours, theirs in mapped.items()}
    return at, {ours: column for ours, column in columns.items() if column is not None}


def _picked(raw: RawLog, mapped: Mapping[str, str]) -> list[Block] | None:
    """Blocks of what is mapped only: other values may be anything."""
    wanted = set(mapped.values())
    return blocks_of([{key: row[key] for key in row if key in wanted} for row in raw.rows], 0)


def columns_of_rows(rows: Sequence[tuple[int, Mapping[str, float]]]) -> tuple[Int64, dict[str, Column]]:
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
