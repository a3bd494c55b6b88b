"""Schedule of tests of `MeanShift`: how often at each scale.

At which level, and the sums of the two windows.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from trimtab.detect.detectors.mean_shift.statistic import Sums
from trimtab.typing import Float64

LENIENT = 128
"""The longest window over which a trend is carried on."""


@lru_cache(maxsize=256)
def z_scores(arl: float, scales: tuple[int, ...], sides: int) -> tuple[float, ...]:
    """Return the z-score each scale must exceed, for one false alarm in `arl` values.

    >>> [round(z, 2) for z in z_scores(1e4, (8, 256), 1)]
    [3.89, 3.28]
    """
    levels = [min(0.05, max(1.0, n / 25.0) / (len(scales) * sides * arl)) for n in scales]
    return tuple(NormalDist().inv_cdf(1.0 - level) for level in levels)


def stride(n: int) -> int:
    """Return the steps between tests of a window of n values: n/8, at most 16.

    >>> stride(8), stride(64), stride(256)
    (1, 8, 16)
    """
    return max(1, min(16, n // 8))


def first_test(n: int, min_reference: int) -> int:
    """Return how many values a test at scale n needs.

    The window, and a reference of its length and of `min_reference`.

    >>> first_test(8, 40), first_test(64, 40)
    (48, 128)
    """
    return n + max(n, min_reference)


def cumulated(x: Float64) -> Float64:
    """(5, T+1): sums of x, x^2, t x, x_t x_(t-1) and x_t x_(t-4) up to each step."""
    rows = np.zeros((5, x.size + 1))
    rows[0, 1:], rows[1, 1:], rows[2, 1:] = x, x * x, np.arange(x.size) * x
    rows[3, 2:], rows[4, 5:] = x[1:] * x[:-1], x[4:] * x[:-4]
    out: Float64 = np.empty_like(rows)
    np.cumsum(rows, axis=1, out=out)
    return out


def gather(sums: Any, x: Any, end: Any, n: Any, s: Any) -> Sums:
    """Return the sums of tests whose n values end before `end`, with references from `s` on.

    Off lists or arrays.
    """
    r, total, half = end - n, sums[0], n // 2
    m = r - s
    middle = s + m // 2
    return Sums(
        m=m, n=n, first=s, x=total[r] - total[s], x2=sums[1][r] - sums[1][s], tx=sums[2][r] - sums[2][s],
        lag1=sums[3][r] - sums[3][s + 1], lag4=sums[4][r] - sums[4][s + 4], x_first=x[s], x_last=x[r - 1],
        ends=total[s + 4] - total[s] + total[r] - total[r - 4], early=total[end - half] - total[r],
        late=total[end] - total[end - half], n_early=n - half, test_x2=sums[1][end] - sums[1][r],
        x_half=total[r] - total[middle], tx_half=sums[2][r] - sums[2][middle],
    )  # fmt: skip
