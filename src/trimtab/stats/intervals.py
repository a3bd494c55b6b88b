"""Intervals of a proportion whose trials come in clusters, and of a quantile whatever the distribution."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np


def effective_trials(
    trials: float, hits: float, clusters: int, sum_ff: float, sum_fc: float, sum_cc: float
) -> float:
    """How many independent trials carry as much? From sums over clusters of hits^2, hits by trials and
    trials^2.

    p(1-p) over the variance of the ratio estimator, G/(G-1) sum (f - p c)^2 / (sum c)^2 (Cochran 1977, 6.4),
    at most `trials`. Where all or none hit, or there is one cluster, that says nothing and every cluster
    counts once.

    >>> round(effective_trials(100, 50, 100, 50, 50, 100), 6)  # clusters of one
    99.0
    >>> round(effective_trials(100, 50, 10, 500, 500, 1000), 6)  # clusters of ten, all alike
    9.0
    """
    if clusters < 2 or not 0 < hits < trials:
        return float(min(trials, clusters))
    p = hits / trials
    variance = clusters / (clusters - 1) * (sum_ff - 2 * p * sum_fc + p * p * sum_cc) / trials**2
    return min(trials, p * (1 - p) / variance) if variance > 0 else float(trials)


def share_interval(share: float, trials: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's (1927) interval of a share of (effective) trials; (nan, nan) without any. It begins at 0 for
    none and ends at 1 for all.

    >>> low, high = share_interval(0.5, 20)
    >>> round(low, 4), round(high, 4)
    (0.2993, 0.7007)
    """
    if not trials > 0 or not math.isfinite(share):
        return math.nan, math.nan
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return 0.0 if share == 0 else low, 1.0 if share == 1 else high


_EXACT = 20_000
_Z = 1.959963984540054


@lru_cache(maxsize=1024)
def quantile_places(n: int, q: float) -> tuple[int | None, int | None]:
    """Places from 0, in n independent ordered values, of those between which the q-quantile lies 95 times in
    100 or more (2.5 % at most beyond each); None where no value is far enough out. Above 20,000 values by the
    normal approximation, a place wider.

    >>> quantile_places(20, 0.95), quantile_places(100, 0.5)
    ((16, None), (39, 60))
    """
    if n > _EXACT:
        away = _Z * math.sqrt(n * q * (1 - q)) + 1
        low, high = math.floor(n * q - away), math.ceil(n * q + away)
        return (low if low >= 0 else None), (high if high < n else None)
    k = np.arange(n + 1)
    log_choose = math.lgamma(n + 1) - np.array([math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in k])
    # P(count below q <= k)
    below = np.cumsum(np.exp(log_choose + k * math.log(q) + (n - k) * math.log1p(-q)))
    low = int(np.searchsorted(below, 0.025 + 1e-12, "right")) - 1  # the last of which P is 2.5 % at most
    high = int(np.searchsorted(below, 0.975 - 1e-12))
    return (low if low >= 0 else None), (high if high < n else None)
