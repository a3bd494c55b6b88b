"""Series of rewards, of the likelihood of correct answers, and of the gradient norm where groups differ."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trimtab.measure.steps.step_outcomes import settled_columns
from trimtab.measure.steps.step_tokens import StepTokens
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.measure.steps.trajectory_means import trajectory_mean
from trimtab.types import TokenBatch
from trimtab.typing import Bool, Float64, Int64

_SOURCE = "source/"


def reward_columns(
    tokens: StepTokens,
    columns: dict[str, tuple[tuple[str, ...], Estimates]],
    reasons: dict[str, str],
    solved_at: float | None,
    gradient_norm: float | None,
    bar: float | None = None,
) -> None:
    """Add the series that rest on rewards, and the gradient norm.

    `reward/mean`: of the trajectories with tokens in a slice. `reward/equal_mix`: mean over the declared
    sources, each of the same weight. `reward/mixed_groups_frac`: fraction of groups whose rewards differ.
    `correct/logprob`: mean log-probability a token of correct trajectories. `gradient/norm`.
    """
    rewards = tokens.sequence_column(lambda batch: batch.reward)
    varied = math.nan
    if rewards is None or np.isnan(rewards).all():
        reasons |= dict.fromkeys(("reward", "correct"), "no reward in this step")
    else:
        reward = _by_trajectory(tokens, rewards)
        group = _groups(tokens)
        mean = trajectory_mean(tokens, reward, group)
        columns["reward/mean"] = tokens.slices, mean
        mix = equal_mix(
            dict(zip(tokens.slices, zip(*mean, strict=True), strict=True)), source_slices(tokens.batches)
        )
        if isinstance(mix, str):
            reasons["reward/equal_mix"] = mix
        else:
            columns["reward/equal_mix"] = ("all",), mix
        top, differs = _tops(reward, group)
        if group is None:
            reasons["reward/mixed_groups_frac"] = "no groups in this step"
            varied = float(differs.any())
        else:
            share = _group_share(group, reward, differs)
            columns["reward/mixed_groups_frac"] = ("all",), share
            varied = float(share.values[0])
            settled_columns(group, reward, columns, bar if solved_at is None else solved_at)
        _add_correct(tokens, columns, reasons, top if solved_at is None else reward >= solved_at)
    _add_gradient(tokens, columns, reasons, gradient_norm, varied)


def source_slices(batches: tuple[TokenBatch, ...]) -> list[str]:
    """The slices of the sources that the batches declare."""
    return [f"{_SOURCE}{name}" for name in dict.fromkeys(name for b in batches for name in b.source_names)]


def equal_mix(rows: Mapping[str, tuple[float, ...]], sources: list[str]) -> Estimates | str:
    """Return the mean of the sources' mean rewards, or the reason why it is unknown.

    Args:
        rows: slice -> value, error, tokens, trajectories of `reward/mean`.
        sources: slices of the declared sources.

    Returns:
        One estimate, or the reason why a source has none.
    """
    if len(sources) < 2:
        return "fewer than two sources are declared"
    missing = [name for name in sources if name not in rows or not rows[name][3]]
    if missing:
        return f"no reward of {missing[0]} in this step"
    values, errors, num_tokens, num = (
        np.array(part) for part in zip(*(rows[n] for n in sources), strict=True)
    )
    error = np.sqrt((errors**2).sum()) / len(sources)
    return Estimates(
        np.array([values.mean()]), np.array([error]), np.array([num_tokens.sum()]), np.array([num.sum()])
    )


def _by_trajectory(tokens: StepTokens, values: Float64) -> Float64:
    """(B,) to the mean over each trajectory's sequences (J,), NaN left out."""
    keep = ~np.isnan(values)
    sums = np.bincount(tokens.of_sequence[keep], values[keep], tokens.num_trajectories)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.bincount(tokens.of_sequence[keep], minlength=tokens.num_trajectories))


def _groups(tokens: StepTokens) -> Int64 | None:
    """(J,) the group of each trajectory; None unless every batch has groups."""
    if any(batch.group is None for batch in tokens.batches):
        return None
    groups = np.zeros(tokens.num_trajectories, np.int64)
    groups[tokens.of_sequence] = np.concatenate([batch.group for batch in tokens.batches])
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def _tops(reward: Float64, group: Int64 | None) -> tuple[Bool, Bool]:
    """(J,) trajectories with the top reward of a group whose rewards differ, and those of such groups."""
    group = np.zeros(reward.size, np.int64) if group is None else group
    keep = ~np.isnan(reward)
    high, low = np.full(group.max() + 1, -np.inf), np.full(group.max() + 1, np.inf)
    np.maximum.at(high, group[keep], reward[keep])
    np.minimum.at(low, group[keep], reward[keep])
    differs = keep & (high > low)[group]
    return differs & (reward == high[group]), differs


def _group_share(group: Int64, reward: Float64, differs: Bool) -> Estimates:
    """Fraction of the groups of two and more rewards that have variance; counts are of groups."""
    sizes = np.bincount(group[~np.isnan(reward)], minlength=group.max() + 1)
    mixed = np.bincount(group[differs], minlength=sizes.size) > 0
    num = int(np.count_nonzero(sizes > 1))
    frac = np.count_nonzero(mixed) / num if num else math.nan
    error = math.sqrt(frac * (1 - frac) / (num - 1)) if num > 1 else math.nan
    return Estimates(np.array([frac]), np.array([error]), np.array([0]), np.array([num]))


def _add_correct(
    tokens: StepTokens,
    columns: dict[str, tuple[tuple[str, ...], Estimates]],
    reasons: dict[str, str],
    correct: Bool,
) -> None:
    def read(batch: TokenBatch) -> Float64 | str:
        values = batch.logprobs if batch.logprobs is not None else batch.old_logprobs
        return "no logprobs: not given" if values is None else values[batch.loss_mask].astype(np.float64)

    values = tokens.column(read)
    if isinstance(values, str) or not correct.any():
        reasons["correct"] = values if isinstance(values, str) else "no correct answer in this step"
        return
    keep = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = tokens.sums(values, keep) / tokens.counts(keep)
    columns["correct/logprob"] = (
        tokens.slices, trajectory_mean(tokens, np.where(correct[:, None], means, np.nan))
    )  # fmt: skip


def _add_gradient(
    tokens: StepTokens,
    columns: dict[str, tuple[tuple[str, ...], Estimates]],
    reasons: dict[str, str],
    norm: float | None,
    varied: float,
) -> None:
    """The norm, unless no group's rewards differ: then it holds no gradient of rewards."""
    if norm is None:
        reasons["gradient"] = "no gradient norm among the metrics of this step"
    elif varied == 0.0:
        reasons["gradient"] = "the rewards of no group differ in this step"
    else:
        counts = np.array([tokens.num_tokens]), np.array([tokens.num_trajectories])
        columns["gradient/norm"] = ("all",), Estimates(np.array([norm]), np.array([math.nan]), *counts)
