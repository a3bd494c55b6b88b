"""Exact counts: a table, categories by row, and values at the extremes of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.summaries import input_checks as inputs
from trimtab.stats.summaries.base import RowSummary, Summary


class Counts(Summary):
    """Table of whole numbers (rows, columns). Exact int64, so every merge is exact.

    >>> counts = Counts(2, 3)
    >>> counts.add([[1, 0, 2], [0, 1, 0]])
    >>> (counts + counts).table.tolist()
    [[2, 0, 4], [0, 2, 0]]
    """

    kind: ClassVar[bytes] = b"CO"
    adds_up: ClassVar[bool] = True

    def __init__(self, rows: int = 1, columns: int = 1) -> None:
        self.rows = inputs.at_least_one("rows", rows)
        self.columns = inputs.at_least_one("columns", columns)
        self.table = np.zeros((rows, columns), dtype=np.int64)

    def add(self, table: npt.ArrayLike) -> None:
        """Add whole numbers (rows, columns). SummaryError on another shape or type."""
        more = np.asarray(table)
        if more.dtype.kind not in "iu" or more.shape != self.table.shape:
            raise SummaryError(
                f"counts must be integers of shape {self.table.shape}, not {more.dtype} {more.shape}"
            )
        self.table += more

    def _parameters(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self.table,)

    def _absorb(self, other: Counts) -> None:
        self.table += other.table


class ExtremeCounts(RowSummary):
    """Counts of values and of those equal to the extremes seen so far; nan and infinities are counted apart.

    A stream of one value lies wholly at its extremes. The unit is the values' own. Empty gives nan.

    >>> extremes = ExtremeCounts()
    >>> extremes.update([0.0, 0.0, 0.5, 1.0])
    >>> extremes.fraction()
    0.75
    """

    kind: ClassVar[bytes] = b"EC"

    def __init__(self) -> None:
        self._count = np.zeros(3, dtype=np.int64)  # values, at the largest, at the smallest
        self._non_finite = np.zeros((1, 3), dtype=np.int64)
        self._extremes = np.array([-np.inf, -np.inf])  # max x, max -x

    def update(self, values: npt.ArrayLike) -> None:
        """Add values (N,). SummaryError on another shape."""
        part = ExtremeCounts()
        x = inputs.finite(inputs.as_wide_values(values), part._non_finite)
        if x.size:
            part._extremes[:] = x.max(), -x.min()
            part._count[:] = x.size, np.sum(x == x.max()), np.sum(x == x.min())
        self._absorb(part)

    def fraction(self) -> float:
        """Share of values at the smallest or the largest value."""
        if not self.count:
            return float("nan")
        one_value = self._extremes[0] == -self._extremes[1]
        return 1.0 if one_value else float(self._count[1:].sum()) / self.count

    def _parameters(self) -> tuple[int, ...]:
        return ()

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._count, self._non_finite, self._extremes)

    def _absorb(self, other: ExtremeCounts) -> None:
        top = np.maximum(self._extremes, other._extremes)
        mine, theirs = self._extremes == top, other._extremes == top
        self._count[1:] = np.where(mine, self._count[1:], 0) + np.where(theirs, other._count[1:], 0)
        self._count[0] += other._count[0]
        self._non_finite += other._non_finite
        self._extremes[:] = top


class CategoryCounts(Counts):
    """Counts of exclusive categories, numbered from 0, of each row; rows are disjoint cells, as in
    `LogSketch`.

    >>> counts = CategoryCounts(2, 3)
    >>> counts.update([0, 2, 2], [0, 0, 1])
    >>> counts.select([0, 1]).counts().tolist()
    [1, 0, 2]
    """

    kind: ClassVar[bytes] = b"TA"

    def update(self, codes: npt.ArrayLike, rows: npt.ArrayLike | None = None) -> None:
        """Add values of category `codes` (N,); `rows` (N,) as in LogSketch.

        Raises SummaryError for a category out of range, and then adds nothing.
        """
        array = np.asarray(codes)
        code = inputs.as_ids(array, array.size, "codes").astype(np.int64)
        cells = inputs.as_rows(rows, code.size, self.rows)
        if code.size and (code.min() < 0 or code.max() >= self.columns):
            raise SummaryError(f"a category lies in [0, {self.columns}), not {code.min()} to {code.max()}")
        index = code if cells is None else code + cells.astype(np.int64) * self.columns
        self.table += np.bincount(index, minlength=self.table.size).reshape(self.table.shape)

    def select(self, rows: Sequence[int]) -> CategoryCounts:
        """Return a one-row summary of the given rows together. SummaryError if one does not exist or comes
        twice."""
        out = CategoryCounts(1, self.columns)
        out.table[0] = self.table[inputs.chosen(rows, self.rows)].sum(axis=0)
        return out

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the counts (categories,). SummaryError unless there is one row."""
        inputs.need_one_row(self.rows)
        return np.asarray(self.table[0].copy())
