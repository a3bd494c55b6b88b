"""EdgeCounts: how much of a stream lies exactly at its smallest and its largest value?"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.stats.summaries import validation as inputs
from trimtab.stats.summaries.base import Summary


class EdgeCounts(Summary):
    """Counts of values and of those equal to the extremes seen so far; nan and infinities are counted apart.

    A stream of one value lies wholly at its edges. The unit is the values' own. Empty gives nan.

    >>> edges = EdgeCounts()
    >>> edges.update([0.0, 0.0, 0.5, 1.0])
    >>> edges.share()
    0.75
    """

    kind: ClassVar[bytes] = b"EC"

    def __init__(self) -> None:
        self._counts = np.zeros(3, dtype=np.int64)  # values, at the largest, at the smallest
        self._non_finite = np.zeros((1, 3), dtype=np.int64)
        self._extremes = np.array([-np.inf, -np.inf])  # max x, max -x

    def update(self, values: npt.ArrayLike) -> None:
        """Add values (N,). SummaryError on another shape."""
        part = EdgeCounts()
        x = inputs.finite(inputs.as_wide_values(values), part._non_finite)
        if x.size:
            part._extremes[:] = x.max(), -x.min()
            part._counts[:] = x.size, np.sum(x == x.max()), np.sum(x == x.min())
        self._absorb(part)

    @property
    def count(self) -> int:
        """How many finite values?"""
        return int(self._counts[0])

    def share(self) -> float:
        """Share of values at the smallest or the largest value."""
        if not self.count:
            return float("nan")
        one_value = self._extremes[0] == -self._extremes[1]
        return 1.0 if one_value else float(self._counts[1:].sum()) / self.count

    def _parameters(self) -> tuple[int, ...]:
        return ()

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._counts, self._non_finite, self._extremes)

    def _absorb(self, other: EdgeCounts) -> None:
        top = np.maximum(self._extremes, other._extremes)
        mine, theirs = self._extremes == top, other._extremes == top
        self._counts[1:] = np.where(mine, self._counts[1:], 0) + np.where(theirs, other._counts[1:], 0)
        self._counts[0] += other._counts[0]
        self._non_finite += other._non_finite
        self._extremes[:] = top
