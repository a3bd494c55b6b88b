"""TopK: the k largest values of each row, exact; feed -x to keep the smallest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.stats.summaries import input_checks as inputs
from trimtab.stats.summaries.base import RowSummary

CHUNK = 131_072


class TopK(RowSummary):
    """Which are the k largest values of each row, for a tail fit? Exact, unlike a histogram's tail.

    float32 values, their unit is kept. nan, +inf and -inf are counted apart and left out. Rows are disjoint
    cells; `select` gives one row of some of them, which alone answers queries. After the first k values of a
    row, only those above its smallest kept one are touched.

    >>> top = TopK(rows=2, k=2)
    >>> top.update(np.array([1.0, 5.0, 3.0, 9.0], dtype=np.float32), np.array([0, 0, 0, 1]))
    >>> top.select([0]).values().tolist(), top.select([0, 1]).values().tolist(), top.select([0]).count
    ([5.0, 3.0], [9.0, 5.0], 3)
    """

    kind: ClassVar[bytes] = b"TK"

    def __init__(self, rows: int = 1, k: int = 512) -> None:
        self.rows = inputs.at_least_one("rows", rows)
        self.k = inputs.at_least_one("k", k)
        self._largest = np.full((rows, k), -np.inf, dtype=np.float32)  # ascending; -inf where nothing yet
        self._count = np.zeros(rows, dtype=np.int64)
        self._non_finite = np.zeros((rows, 3), dtype=np.int64)

    def update(self, values: npt.ArrayLike, rows: npt.ArrayLike | None = None) -> None:
        """Add values (N,); `rows` (N,) are integers in [0, R), needed unless R is 1. SummaryError as in
        LogSketch."""
        x = inputs.as_values(values)
        cells = inputs.as_rows(rows, x.size, self.rows)
        for start in range(0, x.size, CHUNK):
            part = slice(start, start + CHUNK)
            self._add(x[part], None if cells is None else cells[part])

    def _add(self, x: npt.NDArray[np.float32], cells: npt.NDArray[Any] | None) -> None:
        if not (np.isfinite(x.max()) and np.isfinite(x.min())):
            inputs.count_non_finite(x, cells, self._non_finite)
            finite = np.isfinite(x)
            x, cells = x[finite], None if cells is None else cells[finite]
        if cells is None:
            self._count += x.size
            self._keep(0, x[x > self._largest[0, 0]])
            return
        self._count += np.bincount(cells, minlength=self.rows)
        above = np.flatnonzero(x > self._largest[:, 0].min())
        x, cells = x[above], cells[above]
        above = np.flatnonzero(x > self._largest[cells, 0])
        x, cells = x[above], cells[above]
        for row in np.unique(cells):
            self._keep(int(row), x[cells == row])

    def _keep(self, row: int, candidates: npt.NDArray[np.float32]) -> None:
        if candidates.size:
            before = self._largest[row]
            both = np.concatenate((before[before > -np.inf], candidates))
            if both.size > self.k:
                both = np.partition(both, -self.k)[-self.k :]
            both.sort()
            self._largest[row, -both.size :] = both

    def select(self, rows: Sequence[int]) -> TopK:
        """A one-row summary of the given rows together. SummaryError if one does not exist or comes twice."""
        at = inputs.chosen(rows, self.rows)
        out = TopK(1, self.k)
        largest = self._largest[at].ravel()
        out._keep(0, largest[largest > -np.inf])  # most rows of a small batch are far from full
        out._count[0] = self._count[at].sum()
        out._non_finite[0] = self._non_finite[at].sum(axis=0)
        return out

    def values(self) -> npt.NDArray[np.float32]:
        """The min(k, count) largest values, descending. SummaryError unless there is one row."""
        inputs.need_one_row(self.rows)
        return np.asarray(self._largest[0, self._largest[0] > -np.inf][::-1])

    def _parameters(self) -> tuple[int, ...]:
        return (self.rows, self.k)

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._largest, self._count, self._non_finite)

    def _absorb(self, other: TopK) -> None:
        self._largest[...] = np.sort(np.concatenate((self._largest, other._largest), axis=1), axis=1)[
            :, -self.k :
        ]
        self._count += other._count
        self._non_finite += other._non_finite
