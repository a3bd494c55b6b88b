"""Two histograms of the same buckets: by how much do their distributions differ, and is it more than
chance?"""

from __future__ import annotations

import math

import numpy as np

from trimtab.errors import SummaryError
from trimtab.typing import Float64, Int64


def ks_distance(a: Int64, b: Int64) -> float:
    """Return the largest |F_a - F_b| at the ends of the buckets.

    It is below the exact Kolmogorov-Smirnov statistic by at most the largest fraction one bucket holds.

    Args:
        a: counts (K,).
        b: counts (K,) of the same buckets.

    Returns:
        A distance in [0, 1]; nan when either is empty.

    Example:
        >>> ks_distance(np.array([2, 2, 0]), np.array([0, 2, 2]))
        0.5
    """
    return float(np.abs(_difference(a, b)).max())


def wasserstein1(a: Int64, b: Int64, boundaries: Float64) -> float:
    """Return the area between the two CDFs, counts spread evenly in their buckets.

    A first bucket that starts at 0 counts as zeros, as `LogSketch` takes it.

    Args:
        a: counts (K,).
        b: counts (K,) of the same buckets.
        boundaries: finite boundaries (K + 1,) of the buckets.

    Returns:
        The distance in the unit of `boundaries`; nan when either is empty.

    Raises:
        SummaryError: the boundaries are not one more than the buckets, or not finite.

    Example:
        >>> wasserstein1(np.array([0, 4, 0]), np.array([0, 0, 4]), np.array([0.0, 1.0, 2.0, 3.0]))
        1.0

    Reference:
        Vallender 1974.
    """
    if boundaries.shape != (a.size + 1,) or not np.isfinite(boundaries).all():
        raise SummaryError(f"{a.size} buckets need {a.size + 1} finite boundaries, not {boundaries.shape}")
    end = _difference(a, b)
    start = np.concatenate(([0.0], end[:-1]))
    start[0] = end[0] if boundaries[0] == 0.0 else 0.0
    one, two = np.abs(start), np.abs(end)
    total = one + two
    crossing = (one * one + two * two) / (2.0 * np.where(total > 0.0, total, 1.0))
    return float(np.sum(np.diff(boundaries) * np.where(start * end < 0.0, crossing, total / 2.0)))


def ks_critical(n_a: float, n_b: float, level: float = 0.05) -> float:
    """Return the value that the KS statistic of two independent samples exceeds with probability `level`.

    Args:
        n_a: size of one sample, may be an effective one.
        n_b: size of the other sample.
        level: probability.

    Returns:
        The asymptotic critical value; nan unless both sizes are above 0.

    Example:
        >>> round(ks_critical(100, 100), 3)
        0.192

    Reference:
        Smirnov 1948.
    """
    if not (n_a > 0 and n_b > 0):
        return float("nan")
    return math.sqrt(-0.5 * math.log(level / 2.0)) * math.sqrt((n_a + n_b) / (n_a * n_b))


def design_effect(counts: Int64) -> float:
    """Return the factor by which the variance of the CDF is larger than that of independent values.

    The cluster-robust variance of each fraction F_k, summed over the bucket ends with F in [0.05, 0.95], over
    the sum of F (1 - F) / n, with the ratio estimator's residuals N_ck - F_k n_c. n over it is the effective
    size.

    Args:
        counts: counts (clusters, K).

    Returns:
        The factor, at least 1; nan with fewer than 2 occupied clusters, or with no bucket end in that range.

    Example:
        >>> design_effect(np.array([[50, 0], [0, 50]]))
        100.0

    Reference:
        Kish 1965.
    """
    sizes = counts.sum(axis=1)
    counts, sizes = counts[sizes > 0], sizes[sizes > 0]
    n, groups = float(sizes.sum()), sizes.size
    if groups < 2:
        return float("nan")
    below = np.cumsum(counts, axis=1)
    share = below.sum(axis=0) / n
    inside = (share >= 0.05) & (share <= 0.95)
    if not inside.any():
        return float("nan")
    share = share[inside]
    residual = below[:, inside] - share * sizes[:, None]
    clustered = groups / (groups - 1.0) * np.square(residual).sum() / (n * n)
    return max(1.0, float(clustered / (np.sum(share * (1.0 - share)) / n)))


def _difference(a: Int64, b: Int64) -> Float64:
    """(K,) F_a - F_b at each bucket's end; nan when either is empty."""
    if a.shape != b.shape or a.ndim != 1:
        raise SummaryError(f"histograms of different buckets cannot be compared: {a.shape} and {b.shape}")
    total_a, total_b = int(a.sum()), int(b.sum())
    if total_a == 0 or total_b == 0:
        return np.full(a.size, np.nan)
    return np.asarray(np.cumsum(a) / total_a - np.cumsum(b) / total_b)
