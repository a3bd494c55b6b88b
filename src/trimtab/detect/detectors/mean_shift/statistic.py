"""Mean difference: how far the mean of the last n values lies from the values before, as a z-score.

It is robust to autocorrelation. The scatter is that of the m reference values about their own line. Their
lag-1 correlation gives the variance of both means as those of an AR(1) process: var(mean of n) = s^2/n [(1 +
phi)/(1 - phi) - 2 phi (1 - phi^n) / (n (1 - phi)^2)]. The correlation is corrected for small-sample bias
(Kendall 1954) and raised by one to three standard errors, and by the decay from lag 1 to lag 4 where that is
slower. It is never taken below `unseen_memory` (1 - m / `memory_values`) of the catalog: few values cannot
tell a slow wander under noise from a level.

The test window's own scatter counts where it is larger: the variance of its mean is at least s_w^2/n, so that
a few outliers, or the first ones after a past without any, do not pass for a change of level. The ratio is
read as Student's t with as many degrees of freedom as the reference holds independent values, and turned into
a z-score (Wallace 1959). The same lines serve one test (floats) and all tests of a series (arrays).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.catalog import bound


@dataclass
class Sums:
    """Sums over the two windows of one test; every field is a float or an array of tests.

    Times count from any origin. Reference of `m` values, first at time `first`: `x`, `x2`, `tx` and the
    lagged products `lag1`, `lag4`; its first and last value `x_first`, `x_last`; `ends`: its first four and
    last four values added. Test window of `n`: `early` of `n_early` and `late`; `test_x2`: its squares.
    `x_half`, `tx_half`: the sums of the reference's later m - m//2 values.
    """

    m: Any
    n: Any
    first: Any
    x: Any
    x2: Any
    tx: Any
    lag1: Any
    lag4: Any
    x_first: Any
    x_last: Any
    ends: Any
    early: Any
    late: Any
    n_early: Any
    test_x2: Any = 0.0
    x_half: Any = 0.0
    tx_half: Any = 0.0


@dataclass
class MeanDifference:
    """`score`: z-score, signed, 0 when the halves disagree; `shift`: mean minus `level`; `scatter`: s."""

    score: Any
    shift: Any
    scatter: Any
    level: Any


class FLOATS:
    """The few functions `mean_difference` needs, for plain floats (a tenth of numpy's time there)."""

    maximum = staticmethod(max)
    minimum = staticmethod(min)
    sqrt = staticmethod(math.sqrt)
    log1p = staticmethod(math.log1p)
    cbrt = staticmethod(lambda x: x ** (1.0 / 3.0))
    where = staticmethod(lambda condition, yes, no: yes if condition else no)


class ARRAYS:
    """The same for arrays."""

    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)
    sqrt = staticmethod(np.sqrt)
    log1p = staticmethod(np.log1p)
    cbrt = staticmethod(np.cbrt)
    where = staticmethod(np.where)


_TINY = 1e-300
_UNSEEN, _ENOUGH = bound("unseen_memory"), bound("memory_values")


def mean_difference(w: Sums, on: Any, sign: int = 0, lenient: bool = False) -> MeanDifference:
    """Return the mean difference of one test or of many; `on` is FLOATS or ARRAYS.

    `sign` is the direction watched, 0 for either. Where the reference moves the other way by more than two
    standard errors, its later half alone is the level: a fall from a level just reached is a fall. `lenient`:
    a trend of the reference in the watched direction, or of its later half where that is steeper, is
    extrapolated as far as it is significant. What grows smoothly, as learning does, is expected to go on.
    """
    m, n = w.m, w.n
    mean, middle = w.x / m, w.first + 0.5 * (m - 1)
    sxx = (m * m - 1.0) * m / 12.0
    slope = (w.tx - middle * w.x) / sxx
    residual = on.maximum(w.x2 - w.x * mean - slope * slope * sxx, 0.0)
    variance, phi, factor = _memory(w, on, mean, slope, sxx, residual)
    level, error = mean, variance * (_mean_factor(phi, n) + _mean_factor(phi, m))
    k = m - m // 2
    later, of_later = w.x_half / k, variance * (_mean_factor(phi, k) - _mean_factor(phi, m))
    if sign:  # against a trend the other way, the level just reached is what counts
        trend = slope * slope * sxx > 4.0 * variance * factor
        away = trend & (sign * slope < 0)
        level, error = on.where(away, later, mean), on.where(away, error + of_later, error)
    if lenient:
        ahead, extra = _carried(slope, variance * factor / sxx, 0.5 * (n + m), on, sign)
        thin = (k * k - 1.0) * k / 12.0
        bent = (w.tx_half - (w.first + m // 2 + 0.5 * (k - 1)) * w.x_half) / thin
        steeper, more = _carried(bent, variance * factor / thin, 0.5 * (n + k), on, sign)
        use = (steeper != 0) & (sign * (later + steeper - level - ahead) > 0)
        level = on.where(use, later + steeper, level + ahead)
        error = error + on.where(use, more + of_later, extra)
    test = w.early + w.late
    within = (w.test_x2 - test * test / n) / (n - 1.0)
    error = on.maximum(error, within / n)
    shift = test / n - level
    early, late = w.early / w.n_early - level, w.late / (n - w.n_early) - level
    side = on.where(shift < 0, -1.0, 1.0)
    shared = on.minimum(early * side, late * side) >= 0.3 * side * shift
    t2 = shift * shift / on.maximum(error, _TINY)
    dof = on.maximum(m / factor - 2.0, 2.0)
    z_score = (8.0 * dof + 1.0) / (8.0 * dof + 3.0) * on.sqrt(dof * on.log1p(t2 / dof))
    score = on.where(shared, side * on.where(shift == 0, 0.0, z_score), 0.0)
    return MeanDifference(score, shift, on.sqrt(variance), level)


def _carried(slope: Any, of_slope: Any, ahead: Any, on: Any, sign: int) -> tuple[Any, Any]:
    """Return a trend over `ahead` steps, shrunk by its own significance, and the variance this adds."""
    keep = on.maximum(0.0, 1.0 - of_slope / on.maximum(slope * slope, _TINY))
    keep = on.where(sign * slope > 0, keep, 0.0)
    return keep * slope * ahead, keep * keep * of_slope * ahead * ahead


def _memory(w: Sums, on: Any, mean: Any, slope: Any, sxx: Any, residual: Any) -> tuple[Any, Any, Any]:
    """Return the variance of one value, the lag-1 correlation to reckon with, and (1 + phi)/(1 - phi)."""
    m, half = w.m, 0.5 * (w.m - 1)
    u_first, u_last = w.x_first - mean, w.x_last - mean
    pairs = w.lag1 - mean * (2.0 * w.x - w.x_first - w.x_last) + (m - 1.0) * mean * mean
    crossed = 2.0 * slope * sxx - (half + 1.0) * u_last + (half + 1.0) * u_first
    pairs = pairs + slope * slope * (sxx - half * half - half) - slope * crossed
    pairs4 = w.lag4 - mean * (2.0 * w.x - w.ends) + (m - 4.0) * mean * mean - slope * slope * (sxx - m * m)
    below = on.maximum(residual, _TINY)
    raw = on.minimum(on.maximum(pairs / below, -0.99), 0.99)
    fourth = on.minimum(on.maximum(pairs4 / below, 0.0), 0.99)
    slow = on.where((raw > 0.01) & (fourth > 2.0 / on.sqrt(m)), on.cbrt(fourth / on.maximum(raw, 0.01)), 0.0)
    doubt = 1.0 + 4.0 * raw**6  # near one, a small error of phi is a large one of the factor
    phi = raw + (2.0 + 4.0 * raw) / m + doubt * on.sqrt((1.0 - raw * raw) / m)
    phi = on.minimum(on.maximum(on.maximum(phi, slow), on.maximum(_UNSEEN * (1.0 - m / _ENOUGH), 0.0)), 0.985)
    factor = (1.0 + phi) / (1.0 - phi)
    return residual / (m - 2.0) / on.maximum(1.0 - 2.0 * factor / m, 0.2), phi, factor


def _mean_factor(phi: Any, n: Any) -> Any:
    """Variance of the mean of n values of an AR(1) process of unit variance."""
    return ((1.0 + phi) / (1.0 - phi) - 2.0 * phi * (1.0 - phi**n) / (n * (1.0 - phi) * (1.0 - phi))) / n
