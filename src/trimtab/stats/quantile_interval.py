"""Between which of the ordered values does a quantile lie, whatever their distribution? By the binomial count of values beyond it."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

_EXACT = 20_000
_Z = 1.959963984540054


@lru_cache(maxsize=1024)
def quantile_places(n: int, q: float) -> tuple[int | None, int | None]:
    """Places from 0, in n independent ordered values, of those between which the q-quantile lies 95 times in 100 or more (2.5 % at most
    beyond each); None where no value is far enough out. Above 20,000 values by the normal approximation, a place wider.

    >>> quantile_places(20, 0.95), quantile_places(100, 0.5)
    ((16, None), (39, 60))
    """
    if n > _EXACT:
        away = _Z * math.sqrt(n * q * (1 - q)) + 1
        low, high = math.floor(n * q - away), math.ceil(n * q + away)
        return (low if low >= 0 else None), (high if high < n else None)
    k = np.arange(n + 1)
    log_choose = math.lgamma(n + 1) - np.array([math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in k])
    below = np.cumsum(
        np.exp(log_choose + k * math.log(q) + (n - k) * math.log1p(-q))
    )  # P(count below q <= k)
    low = int(np.searchsorted(below, 0.025 + 1e-12, "right")) - 1  # the last of which P is 2.5 % at most
    high = int(np.searchsorted(below, 0.975 - 1e-12))
    return (low if low >= 0 else None), (high if high < n else None)
