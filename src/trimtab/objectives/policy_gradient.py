"""Losses with the gradient coefficient x grad log pi_theta, the coefficient detached.

Policies: mu sampled the tokens, pi_old is the trainer's engine at the same weights, pi_theta the policy now.
All losses are to be minimised.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, Reduction, finish, sequence_lengths
from trimtab.objectives.tensor_checks import (
    Number,
    as_mask,
    at_most,
    keep_nan,
    log_ratio,
    masked,
    need_shape,
    per_token_advantages,
    positive,
)
from trimtab.objectives.token_slices import Slices


def reinforce(
    logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    denominator: Number,
    lengths: Tensor | None = None,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    marks: dict[str, Tensor] | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return the policy gradient loss: -sum sg[weights] A log pi_theta / denominator.

    Args:
        logprobs: log pi_theta (B, T), nats, with gradient.
        advantages: A, (B,) or (B, T); positive is better.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        denominator: Divisor of the sum, see `aggregate`.
        lengths: Tokens of each row (B,), for means of rows.
        weights: Factors (B, T) of `corrections`, detached; None is 1.
        keep: Tokens (B, T) that a filter of `corrections` leaves; None is all.
        marks: Boolean (B, T) to count along.
        slices: Slices to count by.

    Returns:
        The loss.

    Example:
        >>> loss = reinforce(torch.tensor([[-2.0]]), torch.tensor([3.0]), torch.tensor([[1]]), denominator=1)
        >>> loss.value
        tensor(6.)

    Reference:
        Williams 1992, Machine Learning 8; with token weights arXiv 2512.01374 eq. 4.
    """
    mask = as_mask(loss_mask)
    score = masked(need_shape("logprobs", logprobs, tuple(mask.shape)), mask)
    by = Reduction(denominator, lengths, weights, keep, marks, slices)
    return finish(-per_token_advantages(advantages, mask) * score, mask, by)


def minirl(
    logprobs: Tensor,
    old_logprobs: Tensor,
    rollout_logprobs: Tensor | None,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    denominator: Number,
    eps_low: Number = 0.2,
    eps_high: Number = 0.27,
    cap: Number | None = 5.0,
    importance: bool = True,
    clip: bool = True,
    length_norm: bool = False,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return MiniRL's loss: -sum_t M_t sg[min(w_t, cap)] A log pi_theta(y_t) / denominator.

    w_t = pi_theta/mu is the total weight. The mask M_t is decided on staleness pi_theta/pi_old: it is 0 where
    A > 0 and staleness > 1 + eps_high, or A < 0 and staleness < 1 - eps_low. A NaN in the loss mask gives a
    NaN loss.

    Args:
        logprobs: log pi_theta (B, T), nats, with gradient.
        old_logprobs: log pi_old (B, T), nats.
        rollout_logprobs: log mu (B, T), nats; may be None with `importance=False`.
        advantages: A, (B,) or (B, T), mean-centred without std (`group_advantages`).
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        denominator: Responses of the whole step: the loss is a sum over tokens.
        eps_low: Bound of staleness below 1.
        eps_high: Bound of staleness above 1.
        cap: Largest weight, a ratio; None: no bound.
        importance: False: weight 1 (ablation).
        clip: False: M = 1 (ablation).
        length_norm: Divide each row by its tokens (ablation).
        keep: Tokens (B, T) that a filter of `corrections` leaves; the others stay in the lengths.
        slices: Slices to count by.

    Returns:
        The loss. Marks: `clipped_high`, `clipped_low` (gradient removed), `truncated` (w_t > cap).

    Raises:
        ObjectiveError: A shape is wrong, or mu is missing.

    Example:
        >>> one = torch.ones(1, 1)
        >>> loss = minirl(-2 * one, -2 * one, -3 * one, torch.tensor([1.0]), one.bool(), denominator=1)
        >>> round(loss.value.item(), 4)  # weight e, log-probability -2
        5.4366

    Reference:
        Zheng et al. 2025, arXiv 2512.01374 eq. 7 and section 4.
    """
    mask = as_mask(loss_mask)
    now = logprobs.detach()
    weight, marks = torch.ones_like(now), {}
    if importance:
        if rollout_logprobs is None:
            raise ObjectiveError("minirl needs rollout_logprobs (mu); without them pass importance=False")
        weight = torch.exp(log_ratio(now, rollout_logprobs.detach(), mask))
        if cap is not None:
            marks["truncated"] = (weight > positive("cap", cap)) & mask
            weight = at_most(weight, cap)
    if clip:
        ratio = torch.exp(log_ratio(now, old_logprobs.detach(), mask))
        advantage = per_token_advantages(advantages, mask)
        high = (advantage > 0) & (ratio > 1 + eps_high)
        low = (advantage < 0) & (ratio < 1 - eps_low)
        marks["clipped_high"], marks["clipped_low"] = high, low
        weight = keep_nan(torch.where(high | low, torch.zeros_like(weight), weight), ratio)
        logprobs = torch.where(high | low, torch.zeros_like(logprobs), logprobs)  # 0 x -inf is NaN
    lengths = sequence_lengths(mask) if length_norm else None
    by: dict[str, Any] = {"denominator": denominator, "lengths": lengths, "weights": weight}
    return reinforce(logprobs, advantages, mask, keep=keep, marks=marks, slices=slices, **by)


def cispo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    denominator: Number,
    high: Number,
    low: Number | None = None,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return CISPO's loss: REINFORCE with the weight sg[clip(pi_theta/pi_old, low, high)].

    No token loses its gradient. The paper bounds above only.

    Args:
        logprobs: log pi_theta (B, T), nats, with gradient.
        old_logprobs: log pi_old (B, T), nats.
        advantages: A, (B,) or (B, T); positive is better.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        denominator: Loss tokens of the whole step.
        high: Largest ratio itself, 1 + epsilon of the paper. TRL names its bound epsilon_high, but compares
            the ratio with it.
        low: Smallest ratio; None: no bound.
        weights: Factors (B, T) of `corrections`, detached.
        keep: Tokens (B, T) that a filter of `corrections` leaves.
        slices: Slices to count by.

    Returns:
        The loss. Marks: `clipped_high`, `clipped_low` where `low` is set.

    Example:
        >>> one = torch.ones(1, 1)
        >>> cispo(-one, -3 * one, one[0], one, denominator=1, high=2.0).value  # ratio e^2 bounded to 2
        tensor(2.)

    Reference:
        MiniMax-M1 2025, arXiv 2506.13585 eq. 4.
    """
    mask = as_mask(loss_mask)
    ratio = torch.exp(log_ratio(logprobs.detach(), old_logprobs.detach(), mask))
    marks = {"clipped_high": (ratio > positive("high", high)) & mask}
    bounded = at_most(ratio, high)
    if low is not None:
        marks["clipped_low"] = (ratio < low) & mask
        bounded = -at_most(-bounded, -low)
    if weights is not None:
        bounded = bounded * masked(need_shape("weights", weights, tuple(mask.shape)), mask)
    by: dict[str, Any] = {"denominator": denominator, "weights": bounded, "keep": keep}
    return reinforce(logprobs, advantages, mask, marks=marks, slices=slices, **by)
