"""The interval of a share whose trials come in clusters: calls of one episode, attempts at one task.

Counting them as independent makes the interval too narrow: twenty failed retries of one call are not twenty failures.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def effective_trials(
    trials: float, hits: float, clusters: int, sum_ff: float, sum_fc: float, sum_cc: float
) -> float:
    """How many independent trials carry as much? From sums over clusters of hits^2, hits by trials and trials^2.

    p(1-p) over the variance of the ratio estimator, G/(G-1) sum (f - p c)^2 / (sum c)^2 (Cochran 1977, 6.4), at most
    `trials`. Where all or none hit, or there is one cluster, that says nothing and every cluster counts once.

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
    """Wilson's (1927) interval of a share of (effective) trials; (nan, nan) without any. It begins at 0 for none and ends at 1 for all.

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
