"""Long-run standard deviation of a series that may hold spikes and one shift of level.

A sum of n values of a series with the autocorrelation phi varies as one of independent values whose variance
is (1 + phi) / (1 - phi) times as large. Differences of neighbours do not see a shift of level, and their
median absolute deviation does not see spikes.
"""

from __future__ import annotations

import numpy as np

from trimtab.catalog import bound
from trimtab.typing import Float64

_TO_SD = 1.4826  # of a median absolute deviation, for normal values
_MAX_PHI = 0.9


def long_run_scale(values: Float64) -> Float64:
    """Return the long-run standard deviation of each rank and phase.

    Args:
        values: (W, R, P) last values of the series, NaN where there is none.

    Returns:
        (R, P), at least `straggler_noise`; NaN with fewer than eight differences. The autocorrelation is
        pooled over ranks, and a rank's scale is at least the phase's median over ranks: a few calm steps must
        not make a rank look precise.

    Reference:
        Anderson 1971, The Statistical Analysis of Time Series, section 8.3 (variance of a mean of AR(1)).
    """
    difference = np.diff(values, axis=0)
    few = np.isfinite(difference).sum(axis=0) < 8
    steps = _TO_SD * _nanmedian(np.abs(difference))  # (R, P)
    phi = _autocorrelation(values)  # (P,)
    scale = steps / np.sqrt(2 * (1 - phi)) * np.sqrt((1 + phi) / (1 - phi))
    pooled = _nanmedian(scale)
    scale = np.maximum(np.maximum(scale, pooled), bound("straggler_noise"))
    return np.where(few, np.nan, scale)


def _autocorrelation(values: Float64) -> Float64:
    """Return each phase's lag-1 autocorrelation, (P,), pooled over ranks, between 0 and 0.9.

    It is the quadrant correlation, sin(pi/2 mean sign product), of values around each rank's median: spikes
    count by their sign alone (Blomqvist 1950, Annals of Mathematical Statistics 21, 593).
    """
    signs = np.sign(values - _nanmedian(values))
    products = signs[1:] * signs[:-1]
    known = np.isfinite(products)
    mean = np.where(known, products, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    pooled = np.sin(np.pi / 2 * _nanmedian(np.where(known.any(axis=0), mean, np.nan)))
    return np.asarray(np.clip(np.nan_to_num(pooled, nan=0.0), 0.0, _MAX_PHI), np.float64)


def _nanmedian(values: Float64) -> Float64:
    """Median over the first axis; NaN, without a warning, where all are. Faster than NumPy's."""
    ascending = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(values).sum(axis=0)[None]
    low, high = (np.maximum(count - 1, 0) // 2, np.minimum(count // 2, max(values.shape[0] - 1, 0)))
    middle = (np.take_along_axis(ascending, low, 0) + np.take_along_axis(ascending, high, 0)) / 2
    return np.asarray(np.where(count > 0, middle, np.nan)[0], np.float64)
