"""How sure is a count, a share, a median? Intervals for the bench's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import beta, chi2

__all__ = ["Interval", "bootstrap", "poisson_upper", "share_interval"]

Interval = tuple[float, float]


def poisson_upper(count: int, level: float = 0.95) -> float:
    """Exact one-sided upper bound of a Poisson mean after `count` events: chi2(level; 2 count + 2) / 2.

    >>> round(poisson_upper(0), 3)
    2.996
    """
    return float(chi2.ppf(level, 2 * (count + 1)) / 2)


def share_interval(hits: int, n: int, level: float = 0.95) -> Interval:
    """Exact two-sided interval of a share (Clopper and Pearson 1934); (0, 1) of no logs."""
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    return low, high


def bootstrap(
    rows: Sequence[Sequence[float]],
    statistic: Callable[[Any], float],
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile interval of `statistic` over rows drawn with replacement, a row a log; NaN of no rows."""
    if not len(rows):
        return float("nan"), float("nan")
    values = np.asarray(rows, float)
    rng = np.random.default_rng(seed)
    drawn = [statistic(values[rng.integers(0, len(values), len(values))]) for _ in range(resamples)]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
