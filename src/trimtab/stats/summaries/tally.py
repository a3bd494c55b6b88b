"""Tally: how many values are of each of a few exclusive kinds, by row? Exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.summaries import validation as inputs
from trimtab.stats.summaries.base import Summary


class Tally(Summary):
    """Counts of `kinds` exclusive kinds, numbered from 0, of each row; rows are disjoint cells, as in `LogSketch`.

    >>> tally = Tally(rows=2, kinds=3)
    >>> tally.update([0, 2, 2], [0, 0, 1])
    >>> tally.select([0, 1]).counts().tolist()
    [1, 0, 2]
    """

    kind: ClassVar[bytes] = b"TA"

    def __init__(self, rows: int = 1, kinds: int = 2) -> None:
        self.rows = inputs.at_least_one("rows", rows)
        self.kinds = inputs.at_least_one("kinds", kinds)
        self._counts = np.zeros((rows, kinds), dtype=np.int64)

    def update(self, codes: npt.ArrayLike, rows: npt.ArrayLike | None = None) -> None:
        """Add values of kind `codes` (N,); `rows` (N,) as in LogSketch. SummaryError for a kind out of range, and then
        nothing is added."""
        array = np.asarray(codes)
        code = inputs.as_ids(array, array.size, "codes").astype(np.int64)
        cells = inputs.as_rows(rows, code.size, self.rows)
        if code.size and (code.min() < 0 or code.max() >= self.kinds):
            raise SummaryError(f"a kind lies in [0, {self.kinds}), not {code.min()} to {code.max()}")
        place = code if cells is None else code + cells.astype(np.int64) * self.kinds
        self._counts += np.bincount(place, minlength=self._counts.size).reshape(self._counts.shape)

    def select(self, rows: Sequence[int]) -> Tally:
        """A one-row summary of the given rows together. SummaryError if one does not exist or comes twice."""
        out = Tally(1, self.kinds)
        out._counts[0] = self._counts[inputs.chosen(rows, self.rows)].sum(axis=0)
        return out

    def counts(self) -> npt.NDArray[np.int64]:
        """(kinds,) counts. SummaryError unless there is one row."""
        inputs.need_one_row(self.rows)
        return np.asarray(self._counts[0].copy())

    def _parameters(self) -> tuple[int, ...]:
        return (self.rows, self.kinds)

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._counts,)

    def _absorb(self, other: Tally) -> None:
        self._counts += other._counts
