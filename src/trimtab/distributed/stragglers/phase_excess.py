"""How much longer a rank takes than the others: R ranks, P phases.

A shock that slows all ranks cancels out, as every rank is compared with the median of the others at the same
step.
"""

from __future__ import annotations

import numpy as np

from trimtab.typing import Float64


def log_seconds(seconds: Float64) -> Float64:
    """Return the logarithm of seconds; NaN where there are none, or not more than 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(seconds > 0, np.log(seconds), np.nan)


def median_of_others(values: Float64) -> Float64:
    """Return for each rank the median of the other ranks' values.

    Args:
        values: (R, P), NaN where a rank has none.

    Returns:
        (R, P); NaN where no other rank has a value, and where the rank itself has none.

    Example:
        >>> median_of_others(np.array([[1.0], [2.0], [9.0], [4.0]]))[:, 0].tolist()
        [4.0, 4.0, 2.0, 2.0]
    """
    count = np.isfinite(values).sum(axis=0)  # (P,)
    order = np.argsort(values, axis=0)  # NaN last
    rank_of = np.argsort(order, axis=0)  # position of each rank among the sorted ones
    ascending = np.take_along_axis(values, order, axis=0)
    others = count - 1
    low, high = np.maximum(others - 1, 0) // 2, np.maximum(others, 0) // 2  # middle of those left
    last = values.shape[0] - 1

    def without(position: np.ndarray) -> Float64:
        shifted = np.minimum(position + (position >= rank_of), last)
        return np.asarray(np.take_along_axis(ascending, shifted, axis=0), np.float64)

    middle = (without(np.broadcast_to(low, values.shape)) + without(np.broadcast_to(high, values.shape))) / 2
    return np.where((others > 0) & np.isfinite(values), middle, np.nan)
