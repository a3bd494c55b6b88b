"""Per-sequence numbers (B,) of packed tokens (N,), without a loop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trimtab.types import TokenBatch
from trimtab.typing import Float64, Int64


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
