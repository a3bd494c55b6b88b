"""Hill's tail index over a sweep of tail sizes, with an answer for ties, zeros and too few values."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.errors import SummaryError
from trimtab.stats.generalized_pareto import LEAST_DRAWS, LEAST_TAIL, pareto_tail_size
from trimtab.typing import Int64


class HillFit(NamedTuple):
    """The median over the sweep, the least and greatest of it, the sweep's largest m, and what to know ("" is
    nothing)."""

    hill: float
    minimum: float
    maximum: float
    tail_size: int
    reason: str


@lru_cache(maxsize=64)
def hill_sweep(n: int) -> Int64:
    """The m over which Hill's estimate is swept: up to 8 numbers, evenly spaced in log m, from M/4 (at least
    5) to M = `pareto_tail_size(n)`.

    >>> hill_sweep(10_000).tolist()
    [75, 91, 111, 136, 166, 202, 246, 300]
    """
    largest = pareto_tail_size(n)
    smallest = min(largest, max(LEAST_TAIL, largest // 4))
    spaced = smallest * (largest / max(1, smallest)) ** (np.arange(8) / 7.0)
    sweep = np.unique(np.round(spaced).astype(np.int64)) if largest else np.zeros(0, np.int64)
    sweep.setflags(write=False)
    return sweep


def hill(log_values_desc: npt.ArrayLike, n: int) -> HillFit:
    """Return Hill's index of the upper tail of n positive values from their largest logarithms.

    H(m) = mean of log(x_(i) / x_(m+1)) over the m largest: 0.5 and above, no finite variance; 1 and above, no
    mean. One m is arbitrary and H(m) is biased off a pure power law. So the answer is the median over
    `hill_sweep(n)`, and a sweep whose ends differ by more than a factor 2 is called unstable in `reason`.
    Ties count as log 1 = 0.

    Args:
        log_values_desc: (M,) logarithms, descending; -inf (zeros) at the end is allowed. Give
            `pareto_tail_size(n)` + 1 values.
        n: number of all values.

    Returns:
        The index and its sweep. nan with a reason: fewer than 25 values in all, a tail that reaches zeros or
        is not given before m = 5, or all equal.

    Raises:
        SummaryError: nan, +inf, another order, or more values than n.

    Example:
        >>> x = -0.5 * np.log((np.arange(10_000) + 0.5) / 10_000)  # Pareto of index 0.5
        >>> round(hill(x, 10_000).hill, 2)
        0.5
        >>> hill([0.0] * 100, 100).reason
        'equal values'

    Reference:
        Hill 1975.
    """
    values = np.asarray(log_values_desc, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any() or np.isposinf(values).any():
        raise SummaryError(
            "tail logarithms must be (M,) without nan or +inf; count and leave those out first"
        )
    if np.any(values[1:] > values[:-1]) or values.size > n:
        raise SummaryError(f"tail logarithms must be in descending order and no more than n = {n}")
    missing = float("nan"), float("nan"), float("nan"), 0
    if n < LEAST_DRAWS:
        return HillFit(*missing, f"{n} values, an estimate needs {LEAST_DRAWS}")
    positive = int(np.isfinite(values).sum())
    sweep = hill_sweep(n)
    usable = sweep[sweep < positive]
    if usable.size == 0:
        return HillFit(*missing, f"only {positive} tail values above 0, an estimate needs {sweep[0] + 1}")
    usable = usable[values[usable] < values[0]]  # a cutoff equal to the largest says nothing
    if usable.size == 0:
        return HillFit(*missing, "equal values")
    mean = np.cumsum(values[:positive])[usable - 1] / usable - values[usable]
    minimum, maximum = float(mean.min()), float(mean.max())
    reason = f"unstable: {minimum:.3g} to {maximum:.3g} over the sweep" if maximum > 2.0 * minimum else ""
    return HillFit(float(np.median(mean)), minimum, maximum, int(usable[-1]), reason)
