"""Losses whose gradient is coefficient x grad log pi_theta with a detached coefficient: REINFORCE, MiniRL, CISPO.

Policies: mu sampled the tokens, pi_old is the trainer's engine at the same weights, pi_theta the policy now.
"""

from __future__ import annotations

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, finish, sequence_lengths
from trimtab.objectives.tensor_checks import (
    Knob,
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
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    marks: dict[str, torch.Tensor] | None = None,
    slices: Slices | None = None,
) -> Loss:
    """-sum sg[weights] A log pi_theta / denominator: the policy gradient theorem with a weight from outside.

    All (B, T) but `advantages`, also (B,). `weights` and `keep` come from `corrections` (None: weight 1, all kept);
    `marks` are counted along. Williams 1992, Mach. Learn. 8; with token weights arXiv 2512.01374 eq. 4.

    >>> loss = reinforce(torch.tensor([[-2.0]]), torch.tensor([3.0]), torch.tensor([[1]]), denominator=1)
    >>> loss.value
    tensor(6.)
    """
    mask = as_mask(loss_mask)
    score = masked(need_shape("logprobs", logprobs, tuple(mask.shape)), mask)
    return finish(
        -per_token_advantages(advantages, mask) * score,
        mask,
        denominator=denominator,
        lengths=lengths,
        weights=weights,
        keep=keep,
        marks=marks,
        slices=slices,
    )


def minirl(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor | None,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    denominator: Knob,
    eps_low: Knob = 0.2,
    eps_high: Knob = 0.27,
    cap: Knob | None = 5.0,
    importance: bool = True,
    clip: bool = True,
    length_norm: bool = False,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """MiniRL: -sum_t M_t sg[min(w_t, cap)] A log pi_theta(y_t) / denominator (arXiv 2512.01374 eq. 7, section 4).

    w_t = pi_theta/mu, the **total** weight, is what `cap` truncates; the mask M_t looks at **staleness** pi_theta/pi_old: it is 0
    where A > 0 and staleness > 1 + eps_high, or A < 0 and staleness < 1 - eps_low. Give mean-centred advantages
    (`group_advantages`), without std, and `denominator` = responses of the whole step: a sum over tokens.

    Ablations: `importance=False` drops the weight (then `rollout_logprobs` may be None); `clip=False` sets M = 1;
    `length_norm` divides each row by its tokens. `keep` (B, T) drops tokens a filter of `corrections` rejected; they stay
    in the lengths. Marks: `clipped_high`, `clipped_low` (gradient removed), `truncated` (w_t > cap). A NaN
    log-probability of the loss gives a NaN loss. Raises ObjectiveError on unequal shapes and when mu is missing.

    >>> one = torch.ones(1, 1)
    >>> loss = minirl(-2 * one, -2 * one, -3 * one, torch.tensor([1.0]), one.bool(), denominator=1)
    >>> round(loss.value.item(), 4)  # weight e, log-probability -2
    5.4366
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
    return reinforce(
        logprobs,
        advantages,
        mask,
        denominator=denominator,
        lengths=sequence_lengths(mask) if length_norm else None,
        weights=weight,
        keep=keep,
        marks=marks,
        slices=slices,
    )


def cispo(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    denominator: Knob,
    high: Knob,
    low: Knob | None = None,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """CISPO: REINFORCE with the weight sg[clip(pi_theta/pi_old, low, high)]; no token loses its gradient.

    `high` and `low` bound the ratio itself (1 + epsilon of arXiv 2506.13585 eq. 4; TRL calls its bound epsilon_high but
    compares the ratio with it). The paper bounds above only. `denominator`: loss tokens of the whole step.

    >>> one = torch.ones(1, 1)
    >>> cispo(-one, -3 * one, one[0], one, denominator=1, high=2.0).value  # ratio e^2 bounded to 2
    tensor(2.)
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
    return reinforce(
        logprobs,
        advantages,
        mask,
        denominator=denominator,
        weights=bounded,
        keep=keep,
        marks=marks,
        slices=slices,
    )
