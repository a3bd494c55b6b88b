"""Filters that only drop tokens, and count them: K3 rejection, veto, off-policy rows, values not finite."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.corrections import Correction, LossTokens, correction, drop_marked
from trimtab.objectives.tensor_checks import (
    Number,
    as_mask,
    log_ratio,
    masked,
    need_shape,
    per_token_advantages,
    positive,
)
from trimtab.objectives.token_slices import Slices


def k3_rejection(
    log_mismatch: Tensor,
    loss_mask: Tensor,
    *,
    bound: Number,
    level: Literal["token", "sequence"] = "sequence",
    slices: Slices | None = None,
) -> Correction:
    """Drop where k3 = rho - 1 - log rho exceeds `bound`: of the token, or its mean over the row.

    k3 >= 0 is an unbiased estimate of KL(mu || pi_old) under mu, so both directions of mismatch count.

    Args:
        log_mismatch: log(pi_old/mu) (B, T), raw, nats; nothing is clamped.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        bound: Largest k3, nats, above 0. verl documents 0.001 to 0.01 for the mean of a row.
        level: "token" drops single tokens, "sequence" whole rows.
        slices: Slices to count by.

    Returns:
        A pure filter, with the mark `k3_above`.

    Raises:
        ObjectiveError: A shape is wrong, `bound` is not above 0, or `level` is unknown.

    Example:
        >>> raw = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> k3_rejection(raw, torch.ones(2, 2), bound=0.1).keep.tolist()  # row mean (e - 2) / 2
        [[False, False], [True, True]]

    Reference:
        Schulman 2020, "Approximating KL divergence"; verl's `rollout_rs=seq_mean_k3`.
    """
    mask = as_mask(loss_mask)
    raw = masked(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)).detach(), mask)
    k3 = torch.expm1(raw) - raw
    if level == "sequence":
        k3 = (k3.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(raw)
    elif level != "token":
        raise ObjectiveError(f"level must be token or sequence, got {level!r}")
    return drop_marked("k3_above", k3 > positive("bound", bound), k3, LossTokens(log_mismatch, mask, slices))


def veto(
    log_mismatch: Tensor, loss_mask: Tensor, *, floor: float = 1e-4, slices: Slices | None = None
) -> Correction:
    """Drop a whole row in which one token has rho < `floor`.

    Such a token says that the trainer thinks the sampled text nearly impossible: a broken prefix, not a stale
    policy.

    Args:
        log_mismatch: log(pi_old/mu) (B, T), raw, nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        floor: Smallest ratio, above 0; 1e-4 to 1e-6 are in use.
        slices: Slices to count by.

    Returns:
        A pure filter, with the mark `vetoed`.

    Raises:
        ObjectiveError: A shape is wrong, or `floor` is not above 0.

    Example:
        >>> veto(torch.tensor([[0.0, -10.0], [0.0, -1.0]]), torch.ones(2, 2)).keep.tolist()
        [[False, False], [True, True]]

    Reference:
        slime, examples/train_infer_mismatch_helper, `mis` with veto threshold.
    """
    mask = as_mask(loss_mask)
    positive("floor", floor)
    raw = masked(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)).detach(), mask)
    mark = (raw < math.log(floor)).any(dim=1, keepdim=True).expand_as(mask)
    return drop_marked("vetoed", mark, raw, LossTokens(log_mismatch, mask, slices))


def off_policy_rejection(
    logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    bound: float,
    slices: Slices | None = None,
) -> Correction:
    """Drop rows with A < 0 whose mean log(mu/pi_theta) exceeds `bound`.

    What the policy no longer writes need not be unlearnt.

    Args:
        logprobs: log pi_theta (B, T), nats.
        rollout_logprobs: log mu (B, T), nats.
        advantages: A, (B,) or (B, T).
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        bound: Largest mean, nats a token, above 0.
        slices: Slices to count by.

    Returns:
        A pure filter, with the mark `off_policy`.

    Raises:
        ObjectiveError: A shape is wrong, or `bound` is not above 0.

    Example:
        >>> now, mu = torch.tensor([[-5.0], [-5.0]]), torch.tensor([[-1.0], [-1.0]])
        >>> advantages = torch.tensor([1.0, -1.0])
        >>> off_policy_rejection(now, mu, advantages, torch.ones(2, 1), bound=2.0).keep.tolist()
        [[True], [False]]

    Reference:
        DeepSeek-V3.2, arXiv 2512.02556 section 3.1; TRL's `off_policy_mask_threshold`.
    """
    mask = as_mask(loss_mask)
    raw = log_ratio(rollout_logprobs.detach(), logprobs.detach(), mask)
    mean = (raw.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(raw)
    mark = (per_token_advantages(advantages, mask) < 0) & (mean > positive("bound", bound))
    return drop_marked("off_policy", mark, mean, LossTokens(raw, mask, slices))


def reject_nonfinite(log_mismatch: Tensor, loss_mask: Tensor, *, slices: Slices | None = None) -> Correction:
    """Drop the tokens whose raw log-ratio is NaN or infinite.

    Filter the mask with it first, `keep` being the loss mask of what follows: a later ratio of a row sums
    over its tokens.

    Args:
        log_mismatch: log(pi_old/mu) (B, T), raw, nats.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        slices: Slices to count by.

    Returns:
        A pure filter, with the mark `nonfinite`.

    Raises:
        ObjectiveError: A shape is wrong.

    Example:
        >>> raw = torch.tensor([[0.1, float("nan"), float("inf")]])
        >>> reject_nonfinite(raw, torch.ones(1, 3)).keep.tolist()
        [[True, False, False]]
    """
    mask = as_mask(loss_mask)
    bad = ~torch.isfinite(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)))
    tokens = LossTokens(log_mismatch, mask, slices)
    return correction(torch.ones_like(log_mismatch), mask & ~bad, {}, tokens, weighs=False)
