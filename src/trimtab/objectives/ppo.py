"""PPO's clipped surrogate once, and the losses that differ from it in one argument: GRPO, Dr. GRPO, DAPO, GSPO.

Staleness is pi_theta/pi_old, pi_old the policy the clip is centred on.
"""

from __future__ import annotations

from typing import Literal

import torch

from trimtab.errors import ObjectiveError
from trimtab.objectives.reduction import Loss, finish, sequence_lengths
from trimtab.objectives.tensor_checks import Knob, as_mask, keep_nan, log_ratio, per_token_advantages
from trimtab.objectives.token_slices import Slices


def ppo_clip(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    denominator: Knob,
    lengths: torch.Tensor | None = None,
    eps_low: Knob = 0.2,
    eps_high: Knob = 0.2,
    dual: Knob | None = None,
    level: Literal["token", "sequence"] = "token",
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    marks: dict[str, torch.Tensor] | None = None,
    slices: Slices | None = None,
) -> Loss:
    """-sum weights min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) / denominator (arXiv 1707.06347 eq. 7).

    `eps_high` above `eps_low` is clip-higher (2503.14476 section 3.1). `dual` c > 1: where A < 0 the objective is at
    least c A (dual clip, 1912.09729 eq. 5; TRL's `delta`). `level="sequence"`: r is GSPO's ratio of the row (see `gspo`).
    All (B, T) but `advantages`, also (B,); the bounds may be (B, T), one a slice. `weights` are detached.
    Marks: `clipped_high`, `clipped_low`, `dual`: the gradient of the token is removed there; `marks` are counted along.
    NaN in, NaN out.

    >>> one = torch.ones(1, 1)
    >>> loss = ppo_clip(-one, -2 * one, torch.tensor([1.0]), one, denominator=1)  # r = e is above 1.2
    >>> round(loss.value.item(), 4), int(loss.counts["clipped_high"]["all"])
    (-1.2, 1)
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
    frozen = torch.stack(list(clips.values())).any(dim=0)
    ratio = torch.exp(torch.where(frozen, log_r.detach(), log_r))
    bounded = keep_nan(torch.minimum(torch.maximum(ratio, low), high), ratio.detach())
    per_token = -torch.minimum(ratio * advantage, bounded * advantage)
    if dual is not None:
        per_token = torch.where(clips["dual"], -_bound(dual, r) * advantage, per_token)
    return finish(
        per_token,
        mask,
        denominator=denominator,
        lengths=lengths,
        weights=weights,
        keep=keep,
        marks={**clips, **(marks or {})},
        slices=slices,
    )


def grpo(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    num_responses: Knob,
    eps_low: Knob = 0.2,
    eps_high: Knob = 0.2,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """GRPO: PPO clip, each row's mean, then the mean over responses of the step (arXiv 2402.03300 eq. 3)."""
    return ppo_clip(
        logprobs, old_logprobs, advantages, loss_mask, denominator=num_responses, lengths=sequence_lengths(loss_mask),
        eps_low=eps_low, eps_high=eps_high, weights=weights, keep=keep, slices=slices,
    )  # fmt: skip


def dr_grpo(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    num_responses: Knob,
    max_length: int,
    eps_low: Knob = 0.2,
    eps_high: Knob = 0.2,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """Dr. GRPO: PPO clip, token sum over a constant, responses x `max_length` (arXiv 2503.20783); centred advantages."""
    return ppo_clip(
        logprobs, old_logprobs, advantages, loss_mask, denominator=num_responses * max_length,
        eps_low=eps_low, eps_high=eps_high, weights=weights, keep=keep, slices=slices,
    )  # fmt: skip


def dapo(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    num_tokens: Knob,
    eps_low: Knob = 0.2,
    eps_high: Knob = 0.28,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """DAPO: clip-higher and a mean over all loss tokens of the step, `num_tokens` (arXiv 2503.14476 eq. 8, section 4.1)."""
    return ppo_clip(
        logprobs, old_logprobs, advantages, loss_mask, denominator=num_tokens,
        eps_low=eps_low, eps_high=eps_high, weights=weights, keep=keep, slices=slices,
    )  # fmt: skip


def gspo(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    num_responses: Knob,
    eps_low: Knob = 3e-4,
    eps_high: Knob = 4e-4,
    weights: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    slices: Slices | None = None,
) -> Loss:
    """GSPO: the ratio is the row's, exp(mean_t log pi_theta/pi_old); each response counts once (arXiv 2507.18071 eq. 5-7).

    Written in the token form (eq. 13-14): equal value and gradient for one advantage a row, and defined for (B, T). The
    clip range is that of a length-normalised ratio, three orders of magnitude below PPO's (section 5.1).
    """
    return ppo_clip(
        logprobs, old_logprobs, advantages, loss_mask, denominator=num_responses, lengths=sequence_lengths(loss_mask),
        eps_low=eps_low, eps_high=eps_high, level="sequence", weights=weights, keep=keep, slices=slices,
    )  # fmt: skip


def _log_ratio(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, mask: torch.Tensor, level: str
) -> torch.Tensor:
    token = log_ratio(logprobs, old_logprobs.detach(), mask)
    if level == "token":
        return token
    if level != "sequence":
        raise ObjectiveError(f"level must be token or sequence, got {level!r}")
    mean = token.detach().sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(mask, token - token.detach() + mean, torch.zeros_like(token))


def _above_one(name: str, value: Knob, like: torch.Tensor) -> torch.Tensor:
    bound = _bound(value, like)
    if not bool((bound > 1).all()):
        raise ObjectiveError(f"{name} must be above 1, got {value}: 1 would freeze on-policy tokens")
    return bound


def _bound(value: Knob, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)
