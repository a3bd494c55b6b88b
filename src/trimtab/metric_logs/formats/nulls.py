"""Is a null a NaN or nothing at all? JSON writers write NaN as null; table writers write null where there was
no value.

Where rows hold different keys, the writer leaves out what it does not have, so a null is a NaN. Where every
row holds every column (Parquet, pandas), a null is nothing when its column has not begun, when its column is
mostly null and comes back (an evaluation every few steps), or when its row has no value in any mostly filled
column (another writer's row). CSV's empty cells are never settled here: they are all nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import cast

Row = dict[str, "float | None"]


def settle_nulls(
    rows: list[tuple[int, Row]], table: bool, count: Counter[str]
) -> list[tuple[int, dict[str, float]]]:
    """The rows without nulls: each is NaN or gone, and what is gone is counted. `table`: every row holds
    every column.

    >>> settle_nulls([(1, {"kl": 0.1}), (2, {"kl": None, "loss": 1.0})], False, Counter())
    [(1, {'kl': 0.1}), (2, {'kl': nan, 'loss': 1.0})]
    """
    if not any(None in row.values() for _, row in rows):
        return cast("list[tuple[int, dict[str, float]]]", rows)
    absent = _absent([row for _, row in rows]) if table else set()
    count["nulls read as absent, not as NaN"] += len(absent)
    return [
        (
            step,
            {
                n: math.nan if v is None else v
                for n, v in row.items()
                if v is not None or (i, n) not in absent
            },
        )
        for i, (step, row) in enumerate(rows)
    ]


def _absent(rows: Sequence[Row]) -> set[tuple[int, str]]:
    """(row, column) of the nulls of a table that stand for nothing."""
    columns = {
        name: [i for i, row in enumerate(rows) if row.get(name) is not None]
        for row in rows[:1]
        for name in row
    }
    dense = [name for name, filled in columns.items() if 2 * len(filled) > len(rows)]
    foreign = {i for i, row in enumerate(rows) if all(row.get(name) is None for name in dense)}
    absent: set[tuple[int, str]] = set()
    for name, filled in columns.items():
        first, last = (filled[0], filled[-1]) if filled else (len(rows), -1)
        comes_back = 2 * len(filled) <= len(rows) and len(filled) < last - first + 1
        nulls = set(range(len(rows))).difference(filled)
        absent |= {(i, name) for i in nulls if i < first or comes_back or i in foreign}
    return absent
