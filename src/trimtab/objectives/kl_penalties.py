"""KL to another policy as a penalty a token: to the reference, or to the proximal policy.

The mistake it prevents: a "KL" without sampler or direction, and a zero-gradient one: k1 is right as a number and useless
as a loss (its gradient has mean zero under the policy itself).
"""

from __future__ import annotations

from typing import Literal

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, finish
from trimtab.objectives.tensor_checks import Knob, as_mask, log_ratio
from trimtab.objectives.token_slices import Slices

Estimator = Literal["k1", "k2", "k3"]


def kl_terms(
    sampler_logprobs: torch.Tensor,
    other_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    estimator: Estimator = "k3",
) -> torch.Tensor:
    """Estimates (B, T), nats, of KL(sampler || other) from tokens of the sampler; gradient through both.

    With l = log(other/sampler): k1 = -l, k2 = l^2 / 2, k3 = e^l - 1 - l (Schulman, "Approximating KL divergence", 2020). KL(pi_theta ||
    pi_ref) of GRPO and TRL is (logprobs, ref_logprobs); KL(pi_prox || pi_theta) of PPO-EWMA is (prox_logprobs, logprobs).

    >>> kl_terms(torch.tensor([[0.0]]), torch.tensor([[-1.0]]), torch.ones(1, 1), estimator="k2")
    tensor([[0.5000]])
    """
    ratio = log_ratio(other_logprobs, sampler_logprobs, as_mask(loss_mask))
    if estimator == "k1":
        return -ratio
    if estimator == "k2":
        return ratio.square() / 2
    if estimator == "k3":
        return torch.expm1(ratio) - ratio
    raise ObjectiveError(f"estimator must be k1, k2 or k3, got {estimator!r}")


def kl_penalty(
    logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    coefficient: Knob,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    estimator: Estimator = "k3",
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """sum coefficient KL(pi_theta || pi_ref) / denominator, to add to a policy loss with the same denominator.

    A coefficient (B, T) from `slices.per_token` constrains single tools ("drift-aware"): more on post-tool tokens, less on
    text. `per_token` of the result includes the coefficient. Tokens sampled by mu and not by pi_theta: give `weights`.
    """
    mask = as_mask(loss_mask)
    terms = kl_terms(logprobs, ref_logprobs.detach(), mask, estimator=estimator)
    return finish(
        terms * coefficient,
        mask,
        denominator=denominator,
        lengths=lengths,
        weights=weights,
        keep=keep,
        slices=slices,
    )
