"""Paired tests of two snapshots: the same prompts before and after, so that easy and hard prompts cancel.

Yes-or-no traits: McNemar's exact test and the adjusted Wald interval of Bonett and Price. Numbers: sign
flips of the differences and a bootstrap over prompts. Holm's correction over all tests of a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.typing import Float64

_SEED = 23
_DRAWS = 2_000
_FLIPS = 10_000
_EXACT_FLIPS = 12
"""Up to so many differences that are not zero, all sign flips are tried."""
_Z95 = 1.959963984540054


class PairedTest(NamedTuple):
    """Mean difference after - before over `n` pairs, its 95 % interval, and the p value of no difference."""

    difference: float
    low: float
    high: float
    p: float
    n: int


def mcnemar(before: Float64, after: Float64) -> PairedTest:
    """Test a difference of two paired proportions.

    Args:
        before: (n,) 0 or 1.
        after: (n,) 0 or 1, of the same prompts.

    Returns:
        Difference of proportions with the adjusted Wald interval, and the exact two-sided p of McNemar's
        test: of
            the pairs that changed, half are expected to change up.

    Example:
        >>> import numpy as np
        >>> test = mcnemar(np.zeros(20), np.r_[np.ones(8), np.zeros(12)])
        >>> round(test.difference, 3), round(test.p, 5)
        (0.4, 0.00781)

    Reference:
        McNemar 1947, doi 10.1007/BF02295996; Bonett and Price 2012, doi 10.3102/1076998611411915.
    """
    n = len(before)
    up = int(np.sum((after > 0.5) & (before <= 0.5)))
    down = int(np.sum((after <= 0.5) & (before > 0.5)))
    if not n:
        return PairedTest(math.nan, math.nan, math.nan, math.nan, 0)
    a, b = (up + 1) / (n + 2), (down + 1) / (n + 2)
    half = _Z95 * math.sqrt(max(a + b - (a - b) ** 2, 0.0) / (n + 2))
    low, high = max(-1.0, a - b - half), min(1.0, a - b + half)
    changed, fewer = up + down, min(up, down)
    tail = sum(math.comb(changed, k) for k in range(fewer + 1)) / 2**changed
    return PairedTest((up - down) / n, low, high, min(1.0, 2.0 * tail), n)


def sign_flip(differences: Float64) -> PairedTest:
    """Test whether paired differences have mean zero.

    Args:
        differences: (n,) after - before, finite.

    Returns:
        Their mean, the bootstrap percentile interval over prompts, and the two-sided p of the sign-flip
        test: all
            flips up to twelve differences that are not zero, else 10,000 random ones with a fixed seed.

    Example:
        >>> import numpy as np
        >>> test = sign_flip(np.array([1.0, 2.0, 1.5, 2.5, 1.0, 3.0]))
        >>> round(test.difference, 3), test.p
        (1.833, 0.03125)

    Reference:
        Good 2005, Permutation, Parametric, and Bootstrap Tests of Hypotheses, section 3.
    """
    n = len(differences)
    if n < 2:
        mean = float(differences.mean()) if n else math.nan
        return PairedTest(mean, math.nan, math.nan, math.nan, n)
    mean = float(differences.mean())
    low, high = bootstrap_interval(differences[:, None])
    moved = differences[differences != 0.0]
    total = abs(float(moved.sum()))
    if len(moved) <= _EXACT_FLIPS:
        bits = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
        sums = np.abs((1.0 - 2.0 * bits) @ moved)
        p = float(np.mean(sums >= total * (1 - 1e-12)))
    else:
        signs = np.random.default_rng(_SEED).integers(0, 2, (_FLIPS, len(moved))) * 2.0 - 1.0
        p = float((1 + np.sum(np.abs(signs @ moved) >= total * (1 - 1e-12))) / (1 + _FLIPS))
    return PairedTest(mean, low, high, p, n)


def bootstrap_interval(columns: Float64) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean over rows, each row (one prompt) drawn as a whole.

    Args:
        columns: (n, k); the mean is of all n k numbers.

    Returns:
        Low and high.

    Example:
        >>> import numpy as np
        >>> bootstrap_interval(np.ones((5, 1)))
        (1.0, 1.0)
    """
    rows = columns.mean(axis=1)
    picks = np.random.default_rng(_SEED).integers(0, len(rows), (_DRAWS, len(rows)))
    low, high = np.quantile(rows[picks].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def resampled(groups: Sequence[Float64], statistic: str, q: float = 0.5) -> tuple[float, float]:
    """Return the 95 % interval of a mean or quantile of tokens, transcripts drawn as a whole.

    Args:
        groups: The values of each transcript's tokens.
        statistic: "mean" or "quantile".
        q: The quantile, in (0, 1).

    Returns:
        Low and high; nan for fewer than two transcripts.

    Example:
        >>> import numpy as np
        >>> resampled([np.ones(3), np.ones(2)], "mean")
        (1.0, 1.0)
    """
    if len(groups) < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(_SEED)
    draws = 400 if statistic == "quantile" else _DRAWS
    picks = rng.integers(0, len(groups), (draws, len(groups)))
    if statistic == "mean":
        sums, sizes = np.array([g.sum() for g in groups]), np.array([float(g.size) for g in groups])
        values = sums[picks].sum(axis=1) / sizes[picks].sum(axis=1)
    else:
        values = np.concatenate([_quantiles(groups, part, q) for part in np.array_split(picks, 8)])
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _quantiles(groups: Sequence[Float64], picks: Any, q: float) -> Float64:
    """Return the quantile of the tokens of each row of picked transcripts (draws, B)."""
    owner = np.repeat(np.arange(len(groups)), [group.size for group in groups])
    tokens = np.concatenate(groups)
    order = np.argsort(tokens)
    times = np.array([np.bincount(row, minlength=len(groups)) for row in picks])
    reached = np.cumsum(times[:, owner[order]], axis=1)
    at = np.argmax(reached >= np.ceil(q * reached[:, -1:]), axis=1)
    return np.asarray(tokens[order][at])


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number; nan stays nan and counts for nothing.

    >>> holm([0.01, 0.04, float("nan"), 0.03])
    [0.03, 0.06, nan, 0.06]

    Reference:
        Holm 1979, Scandinavian Journal of Statistics 6, 65-70.
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    corrected, running = list(p_values), 0.0
    for rank, (p, index) in enumerate(order):
        running = max(running, min(1.0, p * (len(order) - rank)))
        corrected[index] = running
    return corrected
