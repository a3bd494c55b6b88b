"""PPO's clipped surrogate, and the losses that differ from it in one argument: GRPO, DAPO, GSPO.

Staleness is pi_theta/pi_old, pi_old the policy the clip is centred on. All losses are to be minimised.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, Reduction, finish, sequence_lengths
from trimtab.objectives.tensor_checks import (
    Number,
    as_mask,
    keep_nan,
    log_ratio,
    masked,
    per_token_advantages,
)
from trimtab.objectives.token_slices import Slices


def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    denominator: Number,
    lengths: Tensor | None = None,
    eps_low: Number = 0.2,
    eps_high: Number = 0.2,
    dual: Number | None = None,
    level: Literal["token", "sequence"] = "token",
    weights: Tensor | None = None,
    log_weights: Tensor | None = None,
    keep: Tensor | None = None,
    marks: dict[str, Tensor] | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return PPO's loss: -sum weights min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) / denominator.

    NaN in the loss mask gives a NaN loss.

    Args:
        logprobs: log pi_theta (B, T), nats, with gradient.
        old_logprobs: log pi_old (B, T), nats, of the policy the clip is centred on; detached.
        advantages: A, (B,) or (B, T); positive is better.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        denominator: Divisor of the sum, see `aggregate`.
        lengths: Tokens of each row (B,), for means of rows.
        eps_low: The ratio is clipped below 1 - eps_low; a number or (B, T).
        eps_high: The ratio is clipped above 1 + eps_high; larger than eps_low it is clip-higher.
        dual: c > 1, the dual clip: the objective is at least c A where A < 0 (TRL's `delta`).
        level: Whose ratio r is: each token's, or with "sequence" GSPO's ratio of the row.
        weights: Factors (B, T), detached.
        log_weights: Logarithms of further factors (B, T), detached, nats: added to log r before the
            exponential, so that a large ratio and a small factor do not overflow apart.
        keep: Tokens (B, T) that a filter of `corrections` leaves.
        marks: Further boolean (B, T) to count.
        slices: Slices to count by.

    Returns:
        The loss. Marks `clipped_high`, `clipped_low`, `dual`: the gradient of the token is removed there.

    Raises:
        ObjectiveError: A shape is wrong, `dual` is not above 1, or `level` is unknown.

    Example:
        >>> one = torch.ones(1, 1)
        >>> loss = ppo_clip(-one, -2 * one, torch.tensor([1.0]), one, denominator=1)  # r = e is above 1.2
        >>> round(loss.value.item(), 4), int(loss.counts["clipped_high"]["all"])
        (-1.2, 1)

    Reference:
        Schulman et al. 2017, arXiv 1707.06347 eq. 7. Clip-higher: 2503.14476 section 3.1. Dual clip:
        1912.09729 eq. 5.
    """
    mask = as_mask(loss_mask)
    advantage = per_token_advantages(advantages, mask)
    log_r = _log_ratio(logprobs, old_logprobs, mask, level)
    r = torch.exp(log_r.detach())
    low, high = 1 - _bound(eps_low, r), 1 + _bound(eps_high, r)
    clips = {"clipped_high": (advantage > 0) & (r > high), "clipped_low": (advantage < 0) & (r < low)}
    if dual is not None:
        clips["dual"] = (advantage < 0) & (r > _above_one("dual", dual, r))
    # a token without gradient leaves the graph: the backward of an overflowed exp would be 0 x inf
    frozen = torch.stack([*clips.values(), advantage == 0]).any(dim=0)
    extra = torch.zeros_like(r) if log_weights is None else masked(log_weights.detach(), mask)
    factor = torch.exp(extra)
    ratio = torch.exp(torch.where(frozen, log_r.detach(), log_r) + extra)
    clipped = torch.minimum(torch.maximum(r, low), high)
    bounded = torch.where(clipped == r, ratio, keep_nan(clipped * factor, ratio.detach()))
    per_token = -torch.minimum(_times(ratio, advantage), _times(bounded, advantage))
    if dual is not None:
        per_token = torch.where(clips["dual"], -_bound(dual, r) * factor * advantage, per_token)
    return finish(
        per_token, mask, Reduction(denominator, lengths, weights, keep, {**clips, **(marks or {})}, slices)
    )


def grpo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    num_responses: Number,
    eps_low: Number = 0.2,
    eps_high: Number = 0.2,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return the loss of GRPO: PPO's clip, each row's mean, then the mean over responses of the step.

    Args:
        logprobs, old_logprobs, advantages, loss_mask, weights, keep, slices: As in `ppo_clip`.
        num_responses: Responses of the whole step, or this rank's part of them (`local_denominator`).
        eps_low, eps_high: The ratio is clipped to 1 - eps_low .. 1 + eps_high.

    Returns:
        The loss, with the marks of `ppo_clip`.

    Example:
        >>> logs = torch.log(torch.tensor([[1.1, 1.5], [1.0, 1.0]]))
        >>> mask = torch.tensor([[1, 1], [1, 0]])
        >>> grpo(logs, 0 * logs, torch.tensor([1.0, -1.0]), mask, num_responses=2).value
        tensor(-0.0750)

    Reference:
        Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 eq. 3.
    """
    policies, rest = (logprobs, old_logprobs, advantages), _rest(eps_low, eps_high, weights, keep, slices)
    return ppo_clip(
        *policies, loss_mask, denominator=num_responses, lengths=sequence_lengths(loss_mask), **rest
    )


def dr_grpo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    num_responses: Number,
    max_length: int,
    eps_low: Number = 0.2,
    eps_high: Number = 0.2,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return the loss of Dr. GRPO: PPO's clip, the token sum over a constant, responses x `max_length`.

    Args:
        logprobs, old_logprobs, loss_mask, weights, keep, slices: As in `ppo_clip`.
        advantages: Centred, not divided by the standard deviation, (B,) or (B, T).
        num_responses: Responses of the whole step, or this rank's part of them (`local_denominator`).
        max_length: Tokens a response may have.
        eps_low, eps_high: The ratio is clipped to 1 - eps_low .. 1 + eps_high.

    Returns:
        The loss, with the marks of `ppo_clip`.

    Example:
        >>> logs, mask = torch.zeros(2, 2), torch.tensor([[1, 1], [1, 0]])
        >>> dr_grpo(logs, logs, torch.tensor([1.0, -0.5]), mask, num_responses=2, max_length=5).value
        tensor(-0.1500)

    Reference:
        Liu et al. 2025, arXiv 2503.20783, section 3.2.
    """
    policies, rest = (logprobs, old_logprobs, advantages), _rest(eps_low, eps_high, weights, keep, slices)
    return ppo_clip(*policies, loss_mask, denominator=num_responses * max_length, **rest)


def dapo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    num_tokens: Number,
    eps_low: Number = 0.2,
    eps_high: Number = 0.28,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return the loss of DAPO: clip-higher, and a mean over all loss tokens of the step.

    Args:
        logprobs, old_logprobs, advantages, loss_mask, weights, keep, slices: As in `ppo_clip`.
        num_tokens: Loss tokens of the whole step, or this rank's part of them (`local_denominator`).
        eps_low, eps_high: The ratio is clipped to 1 - eps_low .. 1 + eps_high.

    Returns:
        The loss, with the marks of `ppo_clip`.

    Example:
        >>> one = torch.ones(1, 1)
        >>> dapo(one, 0 * one, one[0], one, num_tokens=4).value  # the ratio e is clipped to 1.28
        tensor(-0.3200)

    Reference:
        Yu et al. 2025, arXiv 2503.14476 eq. 8 and section 4.1.
    """
    policies, rest = (logprobs, old_logprobs, advantages), _rest(eps_low, eps_high, weights, keep, slices)
    return ppo_clip(*policies, loss_mask, denominator=num_tokens, **rest)


def gspo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    num_responses: Number,
    eps_low: Number = 3e-4,
    eps_high: Number = 4e-4,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return the loss of GSPO: PPO's clip of the row's ratio, exp(mean_t log pi_theta/pi_old).

    Written in the token form (eq. 13-14): equal value and gradient for one advantage a row, and defined for
    (B, T). The clip range is that of a length-normalised ratio, three orders of magnitude below PPO's
    (section 5.1).

    Args:
        logprobs, old_logprobs, advantages, loss_mask, weights, keep, slices: As in `ppo_clip`.
        num_responses: Responses of the whole step, or this rank's part of them (`local_denominator`).
        eps_low, eps_high: The row's ratio is clipped to 1 - eps_low .. 1 + eps_high.

    Returns:
        The loss, with the marks of `ppo_clip`.

    Example:
        >>> one = torch.ones(1, 1)
        >>> loss = gspo(0.1 * one, 0 * one, one[0], one, num_responses=1)  # e^0.1 is clipped to 1.0004
        >>> round(loss.value.item(), 4)
        -1.0004

    Reference:
        Zheng et al. 2025, arXiv 2507.18071 eq. 5-7.
    """
    policies, rest = (logprobs, old_logprobs, advantages), _rest(eps_low, eps_high, weights, keep, slices)
    rest |= {"level": "sequence", "lengths": sequence_lengths(loss_mask)}
    return ppo_clip(*policies, loss_mask, denominator=num_responses, **rest)


def _times(ratio: Tensor, advantage: Tensor) -> Tensor:
    """The product, 0 where the advantage is 0 though the ratio be infinite."""
    return torch.where(torch.isinf(ratio) & (advantage == 0), torch.zeros_like(ratio), ratio * advantage)


def _rest(
    eps_low: Number, eps_high: Number, weights: Tensor | None, keep: Tensor | None, slices: Slices | None
) -> dict[str, Any]:
    return {"eps_low": eps_low, "eps_high": eps_high, "weights": weights, "keep": keep, "slices": slices}


def _log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, level: str) -> Tensor:
    token = log_ratio(logprobs, old_logprobs.detach(), mask)
    if level == "token":
        return token
    if level != "sequence":
        raise ObjectiveError(f"level must be token or sequence, got {level!r}")
    mean = token.detach().sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(mask, token - token.detach() + mean, torch.zeros_like(token))


def _above_one(name: str, value: Number, like: Tensor) -> Tensor:
    bound = _bound(value, like)
    if not bool((bound > 1).all()):
        raise ObjectiveError(f"{name} must be above 1, got {value}: 1 would freeze on-policy tokens")
    return bound


def _bound(value: Number, like: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)
