"""Counts: a small table of whole numbers that adds up, for shares of several things counted together."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.summaries import validation as inputs
from trimtab.stats.summaries.base import Summary


class Counts(Summary):
    """How often was each of `columns` things seen in each of `rows` places? Exact int64, so every merge is exact.

    >>> counts = Counts(2, 3)
    >>> counts.add([[1, 0, 2], [0, 1, 0]])
    >>> (counts + counts).table.tolist()
    [[2, 0, 4], [0, 2, 0]]
    """

    kind: ClassVar[bytes] = b"CO"

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
