"""Means of one step by slice, of tokens and of trajectories, with errors from trajectories or groups."""

from __future__ import annotations

import numpy as np

from trimtab.measure.steps.step_tokens import StepTokens
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.typing import Bool, Float64, Int64


def token_mean(tokens: StepTokens, values: Float64) -> Estimates:
    """Return the mean of `values` (N,) over the tokens of each slice; NaN are left out.

    It is a ratio of sums over trajectories, so its error is that of a ratio estimator (Cochran 1977, 6.4).
    """
    keep = ~np.isnan(values)
    counts, sums = tokens.counts(keep), tokens.sums(values, keep)  # (J, S)
    num = np.count_nonzero(counts, axis=0).astype(np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = counts.sum(axis=0)
        mean = sums.sum(axis=0) / total
        error = np.sqrt(((sums - mean * counts) ** 2).sum(axis=0) * num / (num - 1)) / total
    return Estimates(mean, _finite(error), total.astype(np.int64), num)


def trajectory_mean(tokens: StepTokens, values: Float64, clusters: Int64 | None = None) -> Estimates:
    """Return the mean over the trajectories that have tokens in a slice; NaN are left out.

    Args:
        tokens: the step's tokens.
        values: (J,) one number a trajectory, or (J, S) one in each slice.
        clusters: (J,) trajectories of one number are not independent, such as rollouts of one prompt; each is
            a cluster of its own by default.

    Returns:
        Mean and cluster-robust standard error of each slice.
    """
    table = np.broadcast_to(values[:, None] if values.ndim == 1 else values, tokens.counts().shape)
    present: Bool = (tokens.counts() > 0) & ~np.isnan(table)
    num = np.count_nonzero(present, axis=0).astype(np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(present, table, 0.0).sum(axis=0) / num
        deviations = np.where(present, table - mean, 0.0)
        members = present.astype(np.int64)
        if clusters is not None and clusters.size:
            order = np.argsort(clusters, kind="stable")
            starts = np.flatnonzero(np.diff(clusters[order], prepend=clusters[order][0] - 1))
            deviations = np.add.reduceat(deviations[order], starts, axis=0)
            members = np.add.reduceat(members[order], starts, axis=0)
        num_clusters = np.count_nonzero(members, axis=0)
        error = np.sqrt((deviations**2).sum(axis=0) * num_clusters / (num_clusters - 1)) / num
    num_tokens = np.where(present, tokens.counts(), 0.0).sum(axis=0).astype(np.int64)
    return Estimates(mean, _finite(error), num_tokens, num)


def _finite(error: Float64) -> Float64:
    """Errors as they are known: NaN instead of infinity."""
    return np.where(np.isfinite(error), error, np.nan)
