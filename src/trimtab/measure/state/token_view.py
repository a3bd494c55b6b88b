"""Rows that partition the gradient tokens by turn, for states too large or too slow to keep in every slice.

Which slices have such a state: `all`, `text` and `post_tool`, for some also `turn/<bucket>`, each a sum of
the rows. N gradient tokens.

Per-sequence numbers (B,) of packed tokens (N,), without a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trimtab.measure.state.slice_state import SliceState
from trimtab.stats import LogSketch
from trimtab.types import TokenBatch
from trimtab.typing import Float32, Float64, Int64

TURN_ROWS: dict[str, tuple[int, ...]] = {
    "all": (0, 1, 2, 3),
    "text": (0,),
    "post_tool": (1, 2, 3),
    "turn/2-3": (1,),
    "turn/4-7": (2,),
    "turn/8+": (3,),
}
"""Slice -> rows that sum to it; row 0 is text, 1 to 3 are turns 2-3, 4-7 and from 8 on."""

MAIN_ROWS: dict[str, tuple[int, ...]] = {"all": (0, 1), "text": (0,), "post_tool": (1,)}
"""The same of the slices `MAIN_SLICES` and two rows, text and after a tool."""


@dataclass(frozen=True)
class TokenView:
    """The gradient tokens of a batch: `sequence` (N,) their rows of it, `ratios` name -> log-ratio (N,) in
    nats."""

    batch: TokenBatch
    sequence: npt.NDArray[np.int64]
    ratios: Mapping[str, Float32]

    @cached_property
    def at(self) -> npt.NDArray[np.int64]:
        """(N,) places of the gradient tokens among all tokens."""
        return np.flatnonzero(self.batch.loss_mask)

    @cached_property
    def rows(self) -> npt.NDArray[np.uint8]:
        """(N,) row of each token, as in `TURN_ROWS`."""
        turn = self.batch.turn[self.at]
        rows = (turn >= 2).view(np.uint8) + (turn >= 4).view(np.uint8) + (turn >= 8).view(np.uint8)
        return np.asarray(rows, dtype=np.uint8)

    @cached_property
    def halves(self) -> npt.NDArray[np.uint8]:
        """(N,) row of each token, as in `MAIN_ROWS`."""
        return np.asarray(self.batch.turn[self.at] >= 2).view(np.uint8)

    def sketch(
        self,
        key: str,
        values: npt.NDArray[np.floating],
        rows: npt.NDArray[np.uint8],
        states: Mapping[str, SliceState],
        slices: Mapping[str, tuple[int, ...]] = TURN_ROWS,
    ) -> None:
        """Histogram `values` of tokens in `rows` and put the sketch of each of `slices` into its state under
        `key`."""
        sketch = LogSketch(rows=len(slices["all"]))
        sketch.update(values, rows)
        for name, chosen in slices.items():
            if name in states:
                states[name].summaries[key] = sketch.select(chosen)


def sequence_sums(values: npt.NDArray[np.generic], lengths: Int64) -> npt.NDArray[np.float64]:
    """(N,) -> (B,) sums in float64; an empty sequence gives 0.

    >>> sequence_sums(np.array([1, 2, 4]), np.array([2, 0, 1])).tolist()
    [3.0, 0.0, 4.0]
    """
    rows = np.repeat(np.arange(lengths.size), lengths)
    return np.asarray(np.bincount(rows, weights=values, minlength=lengths.size), dtype=np.float64)


def own_counts(batch: TokenBatch) -> Int64:
    """(B,) tokens with gradient."""
    return sequence_sums(batch.loss_mask, batch.lengths).astype(np.int64)


def own_means(batch: TokenBatch, values: npt.NDArray[np.floating]) -> Float64:
    """(B,) mean of a token column over tokens with gradient; nan where there are none."""
    total = sequence_sums(np.where(batch.loss_mask, values, 0.0), batch.lengths)
    count = own_counts(batch)
    means = np.full(count.size, np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means
