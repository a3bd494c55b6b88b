"""KL to another policy as a penalty a token: to the reference, or to the proximal policy.

The mistake it prevents: a "KL" without sampler or direction, and a zero-gradient one. k1 is right as a number
and useless as a loss: its gradient has mean zero under the policy itself.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, Reduction, finish
from trimtab.objectives.tensor_checks import Number, as_mask, log_ratio
from trimtab.objectives.token_slices import Slices

Estimator = Literal["k1", "k2", "k3"]


def kl_terms(
    sampler_logprobs: Tensor, other_logprobs: Tensor, loss_mask: Tensor, *, estimator: Estimator = "k3"
) -> Tensor:
    """Return estimates of KL(sampler || other) from tokens of the sampler, with gradient through both.

    With l = log(other/sampler): k1 = -l, k2 = l^2 / 2, k3 = e^l - 1 - l. KL(pi_theta || pi_ref) of GRPO and
    TRL is (logprobs, ref_logprobs); KL(pi_prox || pi_theta) of PPO-EWMA is (prox_logprobs, logprobs).

    Args:
        sampler_logprobs: Log-probabilities (B, T), nats, of the policy whose tokens these are.
        other_logprobs: Log-probabilities (B, T), nats, of the other policy.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        estimator: "k1", "k2" or "k3"; k2 and k3 are 0 or more.

    Returns:
        Estimates (B, T), nats; 0 outside the mask.

    Raises:
        ObjectiveError: A shape is wrong, or the estimator is unknown.

    Example:
        >>> kl_terms(torch.tensor([[0.0]]), torch.tensor([[-1.0]]), torch.ones(1, 1), estimator="k2")
        tensor([[0.5000]])

    Reference:
        Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html.
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
    logprobs: Tensor,
    ref_logprobs: Tensor,
    loss_mask: Tensor,
    *,
    coefficient: Number,
    denominator: Number,
    lengths: Tensor | None = None,
    estimator: Estimator = "k3",
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Return the penalty sum coefficient KL(pi_theta || pi_ref) / denominator.

    Add it to a policy loss with the same denominator.

    Args:
        logprobs: log pi_theta (B, T), nats, with gradient.
        ref_logprobs: log pi_ref (B, T), nats; detached.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        coefficient: Loss per nat, a number or (B, T). A table by slice (`per_token`) constrains single tools:
            more on post-tool tokens, less on text.
        denominator: Divisor of the sum, see `aggregate`.
        lengths: Tokens of each row (B,), for means of rows.
        estimator: See `kl_terms`.
        weights: Factors (B, T), detached: for tokens sampled by mu and not by pi_theta.
        keep: Tokens (B, T) that a filter of `corrections` leaves.
        slices: Slices to count by.

    Returns:
        The penalty; its `per_token` includes the coefficient.

    Example:
        >>> one = torch.ones(1, 2)
        >>> kl_penalty(-one, -one * 2, one, coefficient=0.1, denominator=2, estimator="k2").value  # 0.1 x 1/2
        tensor(0.0500)

    Reference:
        Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 eq. 4 (k3).
    """
    mask = as_mask(loss_mask)
    terms = kl_terms(logprobs, ref_logprobs.detach(), mask, estimator=estimator)
    by = Reduction(denominator, lengths, weights, keep, slices=slices)
    return finish(terms * coefficient, mask, by)
