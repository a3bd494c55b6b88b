"""Quantile of Student's t: the bound of a prediction from a short baseline.

Closed form for integer degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4), inverted by bisection, so
that the base install needs no scipy. Far out, where one less the closed form is rounding, a series of
positive terms.
"""

from __future__ import annotations

import math

_FAR = 1e-9


def t_tail(t: float, dof: int) -> float:
    """P(T > t) for t >= 0 and integer `dof` >= 1.

    >>> round(t_tail(2.262157, 9), 6), t_tail(37.0, 100) < t_tail(10.0, 100) < 1e-16
    (0.025, True)
    """
    theta = math.atan2(t, math.sqrt(dof))
    sine, cosine2 = math.sin(theta), math.cos(theta) ** 2
    if dof % 2:
        term, total = math.cos(theta), math.cos(theta) if dof > 1 else 0.0
        for k in range(3, dof - 1, 2):
            term *= cosine2 * (k - 1) / k
            total += term
        inside = 2.0 / math.pi * (theta + sine * total)
    else:
        term, total = 1.0, 1.0
        for k in range(2, dof - 1, 2):
            term *= cosine2 * (k - 1) / k
            total += term
        inside = sine * total
    tail = (1.0 - inside) / 2.0
    return tail if tail > _FAR else _far_tail(t, dof)


def _far_tail(t: float, dof: int) -> float:
    """Half the incomplete beta function I_x(dof/2, 1/2), x = dof/(dof + t^2), by its hypergeometric series
    (DLMF 8.17.8)."""
    a, x = dof / 2, dof / (dof + t * t)
    log_beta = math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
    front = math.exp(a * math.log(x) - math.log1p(dof / (t * t)) / 2 - log_beta) / a if x > 0 else 0.0
    term = total = 1.0
    k = 0
    while term > 1e-17 * total:
        term *= x * (a + 0.5 + k) / (a + 1 + k)
        total += term
        k += 1
    return front * total / 2


def t_quantile(level: float, dof: int) -> float:
    """t with P(T > t) = `level`, for 0 < level < 0.5 and integer `dof` >= 1.

    >>> round(t_quantile(0.001, 9), 4)
    4.2968
    """
    if not 0.0 < level < 0.5 or dof < 1:
        raise ValueError(f"level must lie in (0, 0.5) and dof be at least 1, got {level} and {dof}")
    low, high = 0.0, 1.0
    while t_tail(high, dof) > level and high < 1e12:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if t_tail(middle, dof) > level else (low, middle)
        if high - low <= 1e-14 * high:
            break
    return high
