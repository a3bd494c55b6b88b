"""Quantiles of a token's |value| by slice, with standard errors from the trajectories.

A quantile is an order statistic: the smallest value that a fraction p of the tokens does not exceed. Its
error is Woodruff's (1952): s is the standard error of the fraction of tokens above it, trajectories are
clusters, and the error is half the distance of the quantiles at p - s and p + s. No density is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.measure.steps.step_tokens import StepTokens
from trimtab.typing import Float64, Int64

MIN_EXCEEDING = 3
"""Trajectories with tokens above a quantile that its error needs (default, not calibrated)."""


class Estimates(NamedTuple):
    """One value and standard error a slice (S,), NaN where unknown."""

    values: Float64
    errors: Float64
    num_tokens: Int64
    num_trajectories: Int64


def abs_quantiles(tokens: StepTokens, values: Float64, levels: Sequence[float]) -> list[Estimates]:
    """Return the quantiles of |values| in each slice. NaN are left out; infinity is the largest.

    Args:
        tokens: the step's tokens.
        values: (N,) for example log-ratios, in nats.
        levels: fractions p in (0, 1).

    Returns:
        Quantile and standard error of each slice, with its tokens and trajectories.
    """
    magnitude = np.abs(values)
    present = ~np.isnan(magnitude)
    counts = tokens.counts(present)  # (J, S)
    order = np.argsort(magnitude)[: np.count_nonzero(present)]  # NaN come last
    cell, parts, slices = tokens.cell[order], [], []
    for table, indices in tokens.slots:
        grouped = np.argsort(table[cell], kind="stable")  # a radix sort: in each slice by value, others last
        parts.append(order[grouped[: int(counts[:, indices].sum())]])
        slices.append(indices)
    in_order = np.concatenate(slices)
    ranked = _Ranked(tokens, magnitude, np.concatenate(parts), counts[:, in_order])
    results = np.full((len(levels), 2, len(tokens.slices)), np.nan)
    for i, level in enumerate(levels):
        results[i][:, in_order] = ranked.quantile(level)
    num_tokens = counts.sum(axis=0).astype(np.int64)
    num_trajectories = np.count_nonzero(counts, axis=0).astype(np.int64)
    return [Estimates(result[0], result[1], num_tokens, num_trajectories) for result in results]


class _Ranked:
    """Tokens sorted by slice and then by value; a token is in several slices. `counts`: (J, S)."""

    def __init__(self, tokens: StepTokens, magnitude: Float64, order: Int64, counts: Float64) -> None:
        self.values, self.trajectory, self.counts = magnitude[order], tokens.trajectory[order], counts
        self.sizes = counts.sum(axis=0)
        self.slice = np.repeat(np.arange(self.sizes.size), self.sizes.astype(np.int64))
        self.first = np.cumsum(self.sizes) - self.sizes
        self.num = np.count_nonzero(counts, axis=0)

    def quantile(self, level: float) -> tuple[Float64, Float64]:
        """The quantile of each slice (S,), and its error by Woodruff's method."""
        shape = self.counts.shape
        with np.errstate(invalid="ignore", divide="ignore"):
            value = self.at(np.full(shape[1], level))
            above = np.flatnonzero(self.values > value[self.slice])
            flat = self.trajectory[above] * shape[1] + self.slice[above]
            exceeding = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
            deviations = exceeding - self.counts * (exceeding.sum(axis=0) / self.sizes)
            spread = np.sqrt((deviations**2).sum(axis=0) * self.num / (self.num - 1)) / self.sizes
            error = (self.at(level + spread) - self.at(level - spread)) / 2
            known = (np.count_nonzero(exceeding, axis=0) >= MIN_EXCEEDING) & np.isfinite(error)
        return value, np.where(known, error, np.nan)

    def at(self, levels: Float64) -> Float64:
        """The order statistic of each slice at its level; NaN where there is none."""
        rank = np.minimum(np.ceil(levels * self.sizes - 1e-9), self.sizes) - 1
        valid = (self.sizes > 0) & ~np.isnan(levels)
        index = np.where(valid, self.first + np.maximum(rank, 0), 0).astype(np.int64)
        return np.where(valid, self.values[index] if self.values.size else np.nan, np.nan)
