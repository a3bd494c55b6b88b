"""Effective sample size (Kish) of one step by slice, of sequences and of tokens, with jackknife errors.

ESS fraction = (sum w)^2 / (n sum w^2), from log-weights less the largest of the slice. The error is that of a
jackknife that leaves out one trajectory at a time, from the trajectories' sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.measure.steps.step_tokens import StepTokens
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.typing import Bool, Float64, Int64

_LARGEST = 1e300
"""Log-weights beyond it count as this one, so that an infinite weight is the largest."""


class Ess(NamedTuple):
    """ESS fraction and log of the mean weight of each slice. From both, sums over ranks can be made again."""

    frac: Estimates
    log_mean_weight: Estimates


def sequence_ess(tokens: StepTokens, log_ratios: Float64) -> Ess:
    """Return the ESS of sequences. A weight is exp of the sum of log-ratios (N,) over the slice's tokens.

    A sequence with a NaN among them is left out.
    """
    sums = np.clip(tokens.sequence_sums(log_ratios), -_LARGEST, _LARGEST)  # (B, S)
    present = (tokens.sequence_counts > 0) & ~np.isnan(sums)
    logs = np.where(present, sums, -np.inf)
    top = logs.max(axis=0, initial=-_LARGEST)
    weights = np.exp(logs - top)
    order = np.argsort(tokens.of_sequence, kind="stable")
    starts = np.searchsorted(tokens.of_sequence[order], np.arange(tokens.num_trajectories))
    by_trajectory = [
        np.add.reduceat(part[order], starts, axis=0)
        for part in (present.astype(np.float64), weights, weights**2)
    ]
    used = np.where(present, tokens.sequence_counts, 0.0).sum(axis=0).astype(np.int64)
    return _kish(by_trajectory, top, used)


def token_ess(tokens: StepTokens, log_ratios: Float64) -> Ess:
    """Return the ESS of tokens, each weighted by exp of its log-ratio (N,); NaN are left out."""
    keep = ~np.isnan(log_ratios)
    logs = np.clip(log_ratios, -_LARGEST, _LARGEST)
    cell_top = np.full(tokens.num_cells, -_LARGEST)
    np.maximum.at(cell_top, tokens.cell[keep], logs[keep])
    weights = np.exp(np.where(keep, logs - cell_top[tokens.cell], 0.0))
    top = np.maximum.reduceat(cell_top[tokens.members], tokens.starts)
    counts = tokens.counts(keep)
    size = np.diff(tokens.starts, append=tokens.members.size)
    scale = np.exp(cell_top[tokens.members] - np.repeat(top, size))  # a cell's own largest to its slice's
    sums = [tokens.sums(weights**power, keep, scale**power) for power in (1, 2)]
    return _kish([counts, *sums], top, counts.sum(axis=0).astype(np.int64))


def _kish(sums: list[Float64], top: Float64, num_tokens: Int64) -> Ess:
    """From sums (J, S) by trajectory of units, weights and squares of weights, divided by exp(top) (S,)."""
    totals = [part.sum(axis=0) for part in sums]
    num = np.count_nonzero(sums[0], axis=0).astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        frac = np.where(top > -_LARGEST, _frac(*totals), np.nan)  # no weight above zero has no ESS
        without = [_without_each(part) for part in sums]
        frac_error = _jackknife(_frac(*without), sums[0] > 0, num)
        log_mean = np.log(totals[1] / totals[0]) + top
        mean_error = _jackknife(np.log(without[1] / without[0]), sums[0] > 0, num)
    counts = num_tokens, num
    return Ess(Estimates(frac, frac_error, *counts), Estimates(log_mean, mean_error, *counts))


def _without_each(part: Float64) -> Float64:
    """Sums (J, S) without each trajectory: those before it and those after it, so that nothing cancels."""
    before = np.zeros_like(part)
    after = np.zeros_like(part)
    before[1:] = np.cumsum(part[:-1], axis=0)
    after[:-1] = np.cumsum(part[:0:-1], axis=0)[::-1]
    return np.asarray(before + after)


def _frac(num: Float64, weight: Float64, square: Float64) -> Float64:
    return np.minimum(1.0, weight**2 / (num * square))


def _jackknife(without: Float64, present: Bool, num: Int64) -> Float64:
    """Standard error from the values without each trajectory (J, S), NaN under two of them."""
    values = np.where(present, without, 0.0)
    mean = values.sum(axis=0) / num
    squares = (np.where(present, without - mean, 0.0) ** 2).sum(axis=0)
    return np.where(num > 1, np.sqrt(squares * (num - 1) / num), np.nan)
