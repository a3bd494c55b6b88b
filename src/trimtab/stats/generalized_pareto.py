"""Pareto k-hat: is the mean of importance weights trustworthy, or carried by a few of them?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.typing import Float64

LEAST_DRAWS = 25  # arviz-stats refuses fewer; a tail of 0.2 n = 5 values
LEAST_TAIL = 5
UNDERFLOW = 1e-300  # stands for a weight that far under the largest one


class ParetoFit(NamedTuple):
    """A k-hat, the bound for its n, how many tail values it rests on, and what to know about it ("" is:
    nothing).

    khat < bound: the weighted mean can be trusted; khat > 1: the mean of the weights does not exist. nan has
    a reason: "equal weights" is the healthiest case, the others mean too little data.
    """

    khat: float
    bound: float
    tail_size: int
    n: int
    reason: str


def khat_bound(n: int) -> float:
    """Return the k-hat below which n draws are enough: min(1 - 1 / log10(n), 0.7).

    Args:
        n: number of draws.

    Returns:
        The bound; nan for n < 2.

    Example:
        >>> [round(khat_bound(n), 3) for n in (100, 1_000, 10_000)]
        [0.5, 0.667, 0.7]

    Reference:
        Vehtari et al. 2024 (arXiv 1507.02646), equation 13.
    """
    return min(1.0 - 1.0 / math.log10(n), 0.7) if n >= 2 else float("nan")


def pareto_tail_size(n: int) -> int:
    """Return how many of n draws are the tail: min(0.2 n, 3 sqrt(n)), rounded up.

    Args:
        n: number of draws.

    Returns:
        Size of the tail.

    Example:
        >>> pareto_tail_size(1_000)
        95

    Reference:
        Vehtari et al. 2024 (arXiv 1507.02646), section 6.
    """
    return min(-(-n // 5), math.ceil(3.0 * math.sqrt(n)))


def pareto_khat(log_weights_tail_desc: npt.ArrayLike, n: int, tail_size: int | None = None) -> ParetoFit:
    """Fit the shape of the upper tail of n weights from their largest logarithms.

    It prevents trusting an ESS or a mean that one lucky draw will overturn. It sees only large weights: feed
    log w and -log w, for in tool-use runs the tail is at w -> 0. Nothing overflows.

    Args:
        log_weights_tail_desc: (M,) nats, descending; -inf (weight zero) at the end is allowed. Give at least
            `pareto_tail_size(n)` + 1 values, the last being the cutoff. With fewer the fit uses what is there
            and `reason` says so: the 512 largest of 10^6 fit a tail six times thinner.
        n: number of all weights.
        tail_size: values of the tail; default `pareto_tail_size(n)`.

    Returns:
        k-hat with its bound, the size of the tail and a reason where there is something to know.

    Raises:
        SummaryError: nan, +inf, an unsorted input, or more values than n.

    Example:
        >>> quantiles = (np.arange(10_000) + 0.5) / 10_000
        >>> log_weights = -0.5 * np.log(quantiles)  # Pareto of shape 0.5, descending
        >>> fit = pareto_khat(log_weights, 10_000)
        >>> round(fit.khat, 2), fit.bound, fit.tail_size, fit.reason
        (0.5, 0.7, 300, '')
        >>> pareto_khat([0.0] * 100, 100).reason
        'equal weights'

    Reference:
        Vehtari et al. 2024 (arXiv 1507.02646), appendix G for the prior; fit by Zhang & Stephens 2009.
    """
    values = np.asarray(log_weights_tail_desc, dtype=np.float64)
    _check(values, n)
    wanted = pareto_tail_size(n) if tail_size is None else tail_size
    size = min(wanted, values.size - 1)
    missing = float("nan"), khat_bound(n), max(size, 0), n
    if n < LEAST_DRAWS:
        return ParetoFit(*missing, f"{n} draws, a fit needs {LEAST_DRAWS}")
    if size < LEAST_TAIL:
        return ParetoFit(*missing, f"{max(size, 0)} tail values, a fit needs {LEAST_TAIL}")
    if values[0] == values[size - 1]:
        return ParetoFit(*missing, "equal weights")
    exceedances = _exceedances(values[:size], float(values[size]))
    reason = "" if size == wanted else f"truncated: {size} of {wanted} tail values"
    if exceedances.size < LEAST_TAIL:
        return ParetoFit(
            *missing, f"ties: only {exceedances.size} of {size} tail values are above the cutoff"
        )
    if exceedances.size < size:
        reason = f"ties: fitted on the {exceedances.size} of {size} tail values above the cutoff"
    return ParetoFit(_shape(exceedances[::-1]), khat_bound(n), exceedances.size, n, reason)


def _check(values: Float64, n: int) -> None:
    if values.ndim != 1 or np.isnan(values).any() or np.isposinf(values).any():
        raise SummaryError(
            "tail log-weights must be (M,) without nan or +inf; count and leave those out first"
        )
    if np.any(values[1:] > values[:-1]):
        raise SummaryError("tail log-weights must be in descending order")
    if values.size > n:
        raise SummaryError(f"{values.size} tail log-weights cannot come from n = {n} draws")


def _exceedances(tail: Float64, cutoff: float) -> Float64:
    """w - cutoff of each tail weight above it, over the largest weight; descending, all above 0."""
    above = tail[tail > cutoff]
    weights = np.exp(above - tail[0]) * -np.expm1(cutoff - above)
    return np.asarray(np.maximum(weights, UNDERFLOW))


def _shape(exceedances: Float64) -> float:
    return float(gpd_shapes(exceedances, np.ones((1, exceedances.size)))[0])


def gpd_shapes(exceedances: Float64, weights: Float64) -> Float64:
    """(R,) shape of a generalised Pareto for each row of weights (R, M) of ascending exceedances (M,) above
    0.

    Zhang & Stephens 2009, with 10 pseudo-draws at 0.5. The grid and its prior are those of the first row, the
    data themselves, so that a bootstrap over the other rows is one matrix product. nan for a row without
    weight.

    >>> x = (1.0 - (np.arange(4_000) + 0.5) / 4_000) ** -0.5 - 1.0  # shape 0.5
    >>> gpd_shapes(x, np.ones((1, 4_000))).round(2).tolist()
    [0.5]
    """
    number = weights.sum(axis=1, keepdims=True)
    n = float(number[0, 0])
    grid = 30 + int(math.sqrt(n))
    steps = 1.0 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    quartile = exceedances[int(np.searchsorted(np.cumsum(weights[0]), int(n / 4 + 0.5)))]
    b = steps / (3.0 * quartile) + 1.0 / exceedances[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        k = weights @ np.log1p(-b[:, None] * exceedances).T / number
        log_likelihood = number * (np.log(-b / k) - k - 1.0)
        likely = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
        likely[likely < 10 * np.finfo(float).eps * likely.sum(axis=1, keepdims=True)] = 0.0
        b_mean = (likely * b).sum(axis=1, keepdims=True) / likely.sum(axis=1, keepdims=True)
        shape = (weights * np.log1p(-b_mean * exceedances)).sum(axis=1, keepdims=True) / number
    return np.asarray(((number * shape + 10 * 0.5) / (number + 10))[:, 0])
