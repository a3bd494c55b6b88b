"""Decoupled PPO: the policy that sampled and the policy that anchors the step are two (arXiv 2110.00641).

pi_behav (mu) sampled the tokens and only corrects. pi_prox bounds the step: a snapshot, or the weight average
of PPO-EWMA. The mistake it prevents: "decoupled" losses whose correction is off by default, so that nothing
is decoupled.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trimtab.objectives.kl_penalties import Estimator, kl_terms
from trimtab.objectives.ppo import ppo_clip
from trimtab.objectives.reduction import Loss, Reduction, finish
from trimtab.objectives.tensor_checks import (
    Number,
    as_mask,
    keep_nan,
    log_ratio,
    masked,
    per_token_advantages,
    positive,
)
from trimtab.objectives.token_slices import Slices


def lifted_behaviour(
    logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor, cap: float | None
) -> tuple[Tensor, Tensor]:
    """Return log pi_behav, raised so that pi_theta/pi_behav <= cap, and the mask (B, T) of raised tokens.

    To lift the denominator bounds the weight and keeps the gradient of log pi_theta; a clamp of the ratio
    would remove it (openai/ppo-ewma 625dac7, `imp_samp_max`).
    """
    mask = as_mask(loss_mask)
    now, behaviour = masked(logprobs.detach(), mask), masked(rollout_logprobs.detach(), mask)
    if cap is None:
        return behaviour, torch.zeros_like(mask)
    floor = now - math.log(float(positive("cap", cap)))
    return keep_nan(torch.maximum(behaviour, floor), now + behaviour), (floor > behaviour) & mask


def decoupled_ppo(
    logprobs: Tensor,
    prox_logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    denominator: Number,
    lengths: Tensor | None = None,
    eps_low: Number = 0.2,
    eps_high: Number = 0.2,
    cap: float | None = 100.0,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return decoupled PPO's clipped loss, anchored at pi_prox and corrected for pi_behav.

    The loss is -sum (pi_prox/pi_behav) min(q A, clip(q, 1 - eps_low, 1 + eps_high) A) / denominator.

    q = pi_theta/pi_prox. With prox = rollout it is PPO; with eps = inf the importance-weighted policy
    gradient.

    Args:
        logprobs: log pi_theta (B, T), nats, with gradient.
        prox_logprobs: log pi_prox (B, T), nats, of the policy that anchors the clip.
        rollout_logprobs: log pi_behav (B, T), nats, of the policy that sampled.
        advantages: A, (B,) or (B, T); positive is better.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        denominator: Divisor of the sum, see `aggregate`.
        lengths: Tokens of each row (B,), for means of rows.
        eps_low, eps_high: q is clipped to 1 - eps_low .. 1 + eps_high.
        cap: Bound on pi_theta/pi_behav, a ratio, as in the authors' code; None: no bound.
        keep: Tokens (B, T) that a filter of `corrections` leaves.
        slices: Slices to count by.

    Returns:
        The loss, with the marks of `ppo_clip` and `capped`.

    Example:
        >>> one = torch.ones(1, 1)
        >>> loss = decoupled_ppo(-one, -2 * one, -3 * one, one[0], one, denominator=1)  # e min(e, 1.2)
        >>> round(loss.value.item(), 4)
        -3.2619

    Reference:
        Hilton et al. 2021, arXiv 2110.00641 section 3, the clipped form.
    """
    mask = as_mask(loss_mask)
    behaviour, capped = lifted_behaviour(logprobs, rollout_logprobs, mask, cap)
    log_weights = log_ratio(prox_logprobs.detach(), behaviour, mask)
    marks = {"capped": capped}
    rest: dict[str, Any] = {
        "denominator": denominator,
        "eps_low": eps_low,
        "eps_high": eps_high,
        "keep": keep,
    }
    rest |= {"lengths": lengths, "log_weights": log_weights, "marks": marks, "slices": slices}
    return ppo_clip(logprobs, prox_logprobs, advantages, mask, **rest)


def decoupled_kl(
    logprobs: Tensor,
    prox_logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    beta: Number,
    denominator: Number,
    lengths: Tensor | None = None,
    estimator: Estimator = "k2",
    cap: float | None = 100.0,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return decoupled PPO's loss with a KL penalty in place of the clip.

    The loss is -sum [(pi_theta/pi_behav) A - beta KL(pi_prox || pi_theta)] / denominator.

    To halve the centre of mass of the average acts like halving beta (section 5).

    Args:
        logprobs, prox_logprobs, rollout_logprobs, advantages, loss_mask: As in `decoupled_ppo`.
        beta: Coefficient, nats to loss; a number or (B, T).
        denominator: Divisor of the sum, see `aggregate`.
        lengths: Tokens of each row (B,), for means of rows.
        estimator: "k2", log(q)^2 / 2 as in the authors' code, "k3" (unbiased for tokens of pi_prox) or "k1".
        cap: Bound on pi_theta/pi_behav, a ratio; None: no bound.
        keep: Tokens (B, T) that a filter of `corrections` leaves.
        slices: Slices to count by.

    Returns:
        The loss, with the mark `capped`.

    Example:
        >>> one = torch.ones(1, 1)
        >>> decoupled_kl(-one, -2 * one, -one, one[0], one, beta=0.5, denominator=1).value  # -(1 - 0.5 x 1/2)
        tensor(-0.7500)

    Reference:
        Hilton et al. 2021, arXiv 2110.00641 section 3, the KL-penalty form.
    """
    mask = as_mask(loss_mask)
    behaviour, capped = lifted_behaviour(logprobs, rollout_logprobs, mask, cap)
    surrogate = torch.exp(log_ratio(logprobs, behaviour, mask)) * per_token_advantages(advantages, mask)
    penalty = beta * kl_terms(prox_logprobs.detach(), logprobs, mask, estimator=estimator)
    by = Reduction(denominator, lengths, keep=keep, marks={"capped": capped}, slices=slices)
    return finish(penalty - surrogate, mask, by)
