"""KL to another policy as a penalty a token: to the reference, or to the proximal policy.

The mistake it prevents: a "KL" without sampler or direction, and a loss whose gradient is that of another KL.
Under tokens of pi_theta itself, k1 and k3 have the right mean; as a loss their expected gradients are

    k1           zero
    k2, k3+      that of KL(pi_theta || pi_ref)
    k3           that of KL(pi_ref || pi_theta)
    k3_weighted  that of KL(pi_theta || pi_ref), for tokens of any sampler

Tokens of another sampler need the weight pi_theta/sampler: `weights`, detached, for k2 and k3+.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, Reduction, finish
from trimtab.objectives.tensor_checks import Number, as_mask, log_ratio
from trimtab.objectives.token_slices import Slices

Estimator = Literal["k1", "k2", "k3", "k3+", "k3_weighted", "reverse", "forward", "low_var_kl", "mse"]
"""Also by gradient: "reverse" is k3+, "forward" is k3. verl's names: low_var_kl is k3, mse is k2."""

_ALIASES = {"reverse": "k3+", "forward": "k3", "low_var_kl": "k3", "mse": "k2"}


def kl_terms(
    sampler_logprobs: Tensor, other_logprobs: Tensor, loss_mask: Tensor, *, estimator: Estimator = "k3"
) -> Tensor:
    """Return estimates of KL(sampler || other) from tokens of the sampler, with gradient through both.

    With l = log(other/sampler): k1 = -l, k2 = l^2 / 2, k3 = e^l - 1 - l, and k3+ is k3 with the gradient of
    k2. KL(pi_theta || pi_ref) of GRPO and TRL is (logprobs, ref_logprobs); KL(pi_prox || pi_theta) of
    PPO-EWMA is (prox_logprobs, logprobs).

    Args:
        sampler_logprobs: Log-probabilities (B, T), nats, of the policy whose tokens these are.
        other_logprobs: Log-probabilities (B, T), nats, of the other policy.
        loss_mask: Tokens of the loss (B, T), boolean or 0 and 1.
        estimator: "k1", "k2", "k3" or "k3+"; all but k1 are 0 or more.

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
    kind = _ALIASES.get(estimator, estimator)
    if kind == "k1":
        return -ratio
    if kind == "k2":
        return ratio.square() / 2
    if kind == "k3":
        return torch.expm1(ratio) - ratio
    if kind == "k3+":
        slope = ratio.square() / 2
        constant = ratio.detach()
        return torch.expm1(constant) - constant + slope - slope.detach()
    raise ObjectiveError(f"estimator must be k1, k2, k3 or k3+, got {estimator!r}")


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
    sampler_logprobs: Tensor | None = None,
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
        estimator: "k3+" or "reverse" has the gradient of KL(pi_theta || pi_ref), the KL it names, with
            `weights` for tokens of another sampler. "k3" or "forward" has that of KL(pi_ref || pi_theta).
            "k3_weighted" is pi_theta/sampler x k3, with the gradient of both factors.
        weights: Factors (B, T), detached: pi_theta/mu for tokens sampled by mu.
        sampler_logprobs: Log-probabilities (B, T), nats, of the policy that sampled, for "k3_weighted".
        keep: Tokens (B, T) that a filter of `corrections` leaves.
        slices: Slices to count by.

    Returns:
        The penalty; its `per_token` includes the coefficient.

    Raises:
        ObjectiveError: A shape is wrong, the estimator is unknown, or "k3_weighted" lacks `sampler_logprobs`.

    Example:
        >>> one = torch.ones(1, 2)
        >>> kl_penalty(-one, -one * 2, one, coefficient=0.1, denominator=2, estimator="k2").value  # 0.1 x 1/2
        tensor(0.0500)

    Reference:
        Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 eq. 4 (k3). k3+: verl's `kl_loss_type`, "k3+".
        k3_weighted: DeepSeek-V3.2, arXiv 2512.02556 section 3.1; TRL's `use_bias_correction_kl`, slime's
        `--use-unbiased-kl`.
    """
    mask = as_mask(loss_mask)
    if estimator == "k3_weighted":
        if sampler_logprobs is None:
            raise ObjectiveError("estimator k3_weighted needs sampler_logprobs, of the policy that sampled")
        terms = kl_terms(logprobs, ref_logprobs.detach(), mask, estimator="k3")
        terms = terms * torch.exp(log_ratio(logprobs, sampler_logprobs.detach(), mask))
    else:
        terms = kl_terms(logprobs, ref_logprobs.detach(), mask, estimator=estimator)
    by = Reduction(denominator, lengths, weights, keep, slices=slices)
    return finish(terms * coefficient, mask, by)
