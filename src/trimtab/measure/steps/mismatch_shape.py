"""The shape of one step's mismatch: another temperature, a shift by one token, or a few wrong tokens?

x = log pi_old - log mu of a token, y its log-probability, H the entropy of the next-token distribution.

| cause | shape | measured by |
|---|---|---|
| another temperature T | x is (1/T - 1) (y + H) to first order | `mismatch/temperature_corr` |
| a shift by one token | each log mu is the neighbour's log pi_old | `mismatch/shifted_frac` |
| some tokens are others | most x stay, a few are many nats | `mismatch/above_3_frac` beside `mismatch/p75` |
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trimtab.measure.steps.step_tokens import StepTokens
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.typing import Float64, Int64

MIN_TOKENS = 30
"""Tokens of a correlation (default, not calibrated)."""
MIN_LENGTH = 4
"""Tokens of a sequence that is tried at another position (default, not calibrated)."""
FAR = 3.0
"""Nats: one policy gives the token twenty times the chance the other does."""
_CLIP = 5.0
_CLEAR = 0.05  # nats: mean |x| below which a sequence has nothing to explain
_FITS = 0.4  # of the mean |x|, that of the shifted sequence


def temperature_corr(mismatch: Float64, old: Float64, entropy: Float64) -> Float64:
    """Return the correlation of x with y + H, where y is the mean of both log-probabilities.

    Args:
        mismatch: (N,) x in nats.
        old: (N,) log pi_old.
        entropy: (N,) nats.

    Returns:
        Value and standard error, without tokens of |x| above `FAR`; NaN under `MIN_TOKENS` tokens, or
        where x or y + H is one value. Near -1 or 1 where one engine's temperature is another.
    """
    with np.errstate(invalid="ignore"):
        keep = (np.abs(mismatch) <= FAR) & np.isfinite(old) & np.isfinite(entropy)
    x = mismatch[keep]
    surprise = old[keep] - x / 2 + entropy[keep]
    num = x.size
    if num < MIN_TOKENS or not x.std() or not surprise.std():
        return np.array([math.nan, math.nan])
    value = float(np.corrcoef(x, surprise)[0, 1])
    return np.array([value, (1 - value**2) / math.sqrt(num - 1)])


def shifted_frac(sequence: Int64, mismatch: Float64, old: Float64) -> Float64:
    """Return the fraction of the sequences that disagree that agree far better when shifted by one token.

    Args:
        sequence: (N,) row of each token; tokens of a row are in order.
        mismatch: (N,) x in nats.
        old: (N,) log pi_old.

    Returns:
        Value and standard error, of sequences of `MIN_LENGTH` tokens and more whose mean |x| is above 0.05
        without their first and last token; 0 where none is.

    Example:
        >>> old = np.tile([-1.0, -3.0, -0.2, -2.0, -0.1], 3)
        >>> rows = np.repeat(np.arange(3), 5)
        >>> shifted_frac(rows, old - np.roll(old, 1), old).tolist()
        [1.0, 0.0]
    """
    sampler = old - mismatch
    size = int(sequence.max()) + 1 if sequence.size else 0
    inner = np.zeros(sequence.size, bool)
    inner[1:-1] = (sequence[1:-1] == sequence[:-2]) & (sequence[1:-1] == sequence[2:])
    here = _means(sequence[inner], np.abs(mismatch[inner]), size)
    tried = []
    for by in (1, -1):
        rows, other = _shift(sequence, by), _shift(sequence, -by)
        gaps = np.abs(_shift(old, by) - _shift(sampler, -by))
        tried.append(_means(rows[rows == other], gaps[rows == other], size))
    with np.errstate(invalid="ignore"):
        counted = (np.bincount(sequence, minlength=size) >= MIN_LENGTH) & (here > _CLEAR)
        shifted = counted & (np.fmin(*tried) < _FITS * here)
    num = int(np.count_nonzero(counted))
    if not num:
        return np.array([0.0, math.nan])
    frac = float(np.count_nonzero(shifted)) / num
    return np.array([frac, math.sqrt(frac * (1 - frac) / num)])


def far_tokens(mismatch: Float64) -> Float64:
    """Return 1 for a token with |x| above `FAR` nats, else 0, NaN where x is (N,)."""
    return np.where(np.isnan(mismatch), math.nan, (np.abs(mismatch) > FAR).astype(np.float64))


def one_estimate(value: Float64, tokens: StepTokens) -> Estimates:
    """A value and its standard error (2,) as the estimate of the slice `all`."""
    counts = np.array([tokens.num_tokens]), np.array([tokens.num_trajectories])
    return Estimates(value[:1], value[1:], *counts)


def _means(rows: Int64, gaps: Float64, size: int) -> Float64:
    """Mean of `gaps` by row, each at most `_CLIP`; NaN for a row without any."""
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = np.bincount(rows, weights=np.minimum(gaps, _CLIP), minlength=size)
        return np.asarray(sums / np.bincount(rows, minlength=size), np.float64)


def _shift(values: Any, by: int) -> Any:
    return values[:-by] if by > 0 else values[-by:]
