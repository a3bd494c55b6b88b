"""Decoupled PPO: the policy that sampled and the policy that anchors the step are two (Hilton et al., arXiv 2110.00641).

Policies: pi_behav sampled the tokens (mu) and only corrects; pi_prox bounds the step: a snapshot, or the weight average of
`ewma` (PPO-EWMA). The mistake it prevents: "decoupled" losses whose correction is off by default, so that nothing is decoupled.
"""

from __future__ import annotations

import math

import torch

from trimtab.objectives.kl_penalties import Estimator, kl_terms
from trimtab.objectives.ppo import ppo_clip
from trimtab.objectives.reduction import Loss, finish
from trimtab.objectives.tensor_checks import (
    Knob,
    as_mask,
    keep_nan,
    log_ratio,
    masked,
    per_token_advantages,
    positive,
)
from trimtab.objectives.token_slices import Slices


def lifted_behaviour(
    logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, loss_mask: torch.Tensor, cap: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """log pi_behav raised so that pi_theta/pi_behav <= cap, detached, and the mask (B, T) of the raised tokens.

    Lifting the denominator bounds the weight and keeps the gradient of log pi_theta, where clamping the ratio would remove it
    (openai/ppo-ewma 625dac7, `imp_samp_max`).
    """
    mask = as_mask(loss_mask)
    now, behaviour = masked(logprobs.detach(), mask), masked(rollout_logprobs.detach(), mask)
    if cap is None:
        return behaviour, torch.zeros_like(mask)
    floor = now - math.log(float(positive("cap", cap)))
    return keep_nan(torch.maximum(behaviour, floor), now + behaviour), (floor > behaviour) & mask


def decoupled_ppo(
    logprobs: torch.Tensor,
    prox_logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    eps_low: Knob = 0.2,
    eps_high: Knob = 0.2,
    cap: float | None = 100.0,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """-sum (pi_prox/pi_behav) min(q A, clip(q, 1 - eps_low, 1 + eps_high) A) / denominator, q = pi_theta/pi_prox.

    arXiv 2110.00641 section 3, the clipped form. `cap` bounds pi_theta/pi_behav as the authors' code does (100; None:
    unbounded; mark `capped`). With prox = rollout it is PPO; with eps = inf the importance-weighted policy gradient.

    >>> one = torch.ones(1, 1)
    >>> loss = decoupled_ppo(-one, -2 * one, -3 * one, one[0], one, denominator=1)  # e min(e, 1.2)
    >>> round(loss.value.item(), 4)
    -3.2619
    """
    mask = as_mask(loss_mask)
    behaviour, capped = lifted_behaviour(logprobs, rollout_logprobs, mask, cap)
    weights = torch.exp(log_ratio(prox_logprobs.detach(), behaviour, mask))
    return ppo_clip(
        logprobs,
        prox_logprobs,
        advantages,
        mask,
        denominator=denominator,
        lengths=lengths,
        eps_low=eps_low,
        eps_high=eps_high,
        weights=weights,
        keep=keep,
        marks={"capped": capped},
        slices=slices,
    )


def decoupled_kl(
    logprobs: torch.Tensor,
    prox_logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    beta: Knob,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    estimator: Estimator = "k2",
    cap: float | None = 100.0,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """-sum [(pi_theta/pi_behav) A - beta KL(pi_prox || pi_theta)] / denominator: the KL-penalty form (2110.00641 section 3).

    `estimator`: k2 = log(q)^2 / 2 as the authors' code; k3 is unbiased for tokens of pi_prox. `beta` may be (B, T), one
    a slice. Halving the centre of mass of the average acts like halving beta (section 5).
    """
    mask = as_mask(loss_mask)
    behaviour, capped = lifted_behaviour(logprobs, rollout_logprobs, mask, cap)
    surrogate = torch.exp(log_ratio(logprobs, behaviour, mask)) * per_token_advantages(advantages, mask)
    penalty = beta * kl_terms(prox_logprobs.detach(), logprobs, mask, estimator=estimator)
    return finish(
        penalty - surrogate,
        mask,
        denominator=denominator,
        lengths=lengths,
        keep=keep,
        marks={"capped": capped},
        slices=slices,
    )
