"""Filters that only drop, and count what they drop: K3 rejection, veto, off-policy sequences, values that are not numbers."""

from __future__ import annotations

import math
from typing import Literal

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.corrections import Correction, correction
from trimtab.objectives.tensor_checks import (
    Knob,
    as_mask,
    keep_nan,
    log_ratio,
    masked,
    need_shape,
    per_token_advantages,
    positive,
)
from trimtab.objectives.token_slices import Slices


def k3_rejection(
    log_mismatch: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    bound: Knob,
    level: Literal["token", "sequence"] = "sequence",
    slices: Slices | None = None,
) -> Correction:
    """Drop where rho - 1 - log rho exceeds `bound`: of the token, or the mean over the row (mark `k3_above`).

    k3 >= 0 is an unbiased estimate of KL(mu || pi_old) under mu (Schulman, "Approximating KL divergence", 2020), so both
    directions of mismatch count. verl documents 0.001 to 0.01 for the row mean. Raw log-ratios: nothing is clamped.

    >>> raw = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    >>> k3_rejection(raw, torch.ones(2, 2), bound=0.1).keep.tolist()  # row mean (e - 2) / 2
    [[False, False], [True, True]]
    """
    mask = as_mask(loss_mask)
    raw = masked(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)).detach(), mask)
    k3 = torch.expm1(raw) - raw
    if level == "sequence":
        k3 = (k3.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(raw)
    elif level != "token":
        raise ObjectiveError(f"level must be token or sequence, got {level!r}")
    return _drop(k3 > positive("bound", bound), k3, log_mismatch, mask, "k3_above", slices)


def veto(
    log_mismatch: torch.Tensor, loss_mask: torch.Tensor, *, floor: float = 1e-4, slices: Slices | None = None
) -> Correction:
    """Drop a whole row in which one token has rho < `floor` (mark `vetoed`; slime's `mis` example, 1e-4 to 1e-6).

    Such a token says that the trainer thinks the sampled text nearly impossible: a broken prefix, not a stale policy.
    """
    mask = as_mask(loss_mask)
    positive("floor", floor)
    raw = masked(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)).detach(), mask)
    hit = (raw < math.log(floor)).any(dim=1, keepdim=True).expand_as(mask)
    return _drop(hit, raw, log_mismatch, mask, "vetoed", slices)


def off_policy_rejection(
    logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    bound: float,
    slices: Slices | None = None,
) -> Correction:
    """Drop rows with A < 0 whose mean log(mu/pi_theta) exceeds `bound` nats (mark `off_policy`): what the policy no longer writes
    need not be unlearnt (DeepSeek-V3.2, arXiv 2512.02556 section 3.1; TRL's `off_policy_mask_threshold`).
    """
    mask = as_mask(loss_mask)
    raw = log_ratio(rollout_logprobs.detach(), logprobs.detach(), mask)
    mean = (raw.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(raw)
    hit = (per_token_advantages(advantages, mask) < 0) & (mean > positive("bound", bound))
    return _drop(hit, mean, raw, mask, "off_policy", slices)


def reject_nonfinite(
    log_mismatch: torch.Tensor, loss_mask: torch.Tensor, *, slices: Slices | None = None
) -> Correction:
    """Drop the tokens whose raw log-ratio is NaN or infinite (mark `nonfinite`): the one way to be rid of them, and counted.

    Filter the mask with it first, `keep` being the loss mask of what follows: a later ratio of a row sums over its tokens.
    """
    mask = as_mask(loss_mask)
    bad = ~torch.isfinite(need_shape("log_mismatch", log_mismatch, tuple(mask.shape)))
    ones = torch.ones_like(log_mismatch)
    return correction(ones, mask & ~bad, log_mismatch, mask, {}, slices, weighs=False)


def _drop(
    hit: torch.Tensor,
    evidence: torch.Tensor,
    log_mismatch: torch.Tensor,
    mask: torch.Tensor,
    name: str,
    slices: Slices | None,
) -> Correction:
    weights = keep_nan(torch.ones_like(evidence), evidence)
    return correction(weights, mask & ~hit, log_mismatch, mask, {name: hit}, slices, weighs=False)
