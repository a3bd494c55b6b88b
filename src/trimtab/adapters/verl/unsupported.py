"""What verl does not give a policy loss, and the checks of its weights before mu is read from them.

A policy loss sees one micro-batch of one rank: pi_old, pi_theta, advantages, one mask, the actor's settings,
and weights made of pi_old/mu. It sees no mu, no reference, no entropies, no weights of the model, and no
other rows of a group. Its mask says 0 for a tool's token, for padding and for a rejected token alike.
"""

from __future__ import annotations

import torch

from trimtab.errors import UnsupportedError

_NO_MU = "verl hands its policy losses no rollout log-probabilities, so {} cannot be decided there: "
_NO_MU += "set algorithm.rollout_correction.{}"
_ONE_BATCH = "a verl policy loss sees one micro-batch of one rank, so {}"
_SETTINGS = {
    "tis": "rollout_is and rollout_is_threshold; its weights multiply every trimtab loss",
    "mis": "rollout_rs=token_k1 or seq_sum_k1 with bounds, and rollout_is",
    "icepop": "rollout_is=token with rollout_is_threshold=0.5_5.0",
    "k3_rejection": "rollout_rs=seq_mean_k3 or token_k3",
    "reject_nonfinite": "rollout_rs, whose comparisons with NaN reject the token",
    "veto": "rollout_rs=seq_max_k2 or seq_max_k3, verl's nearest filters",
    "off_policy_rejection": "rollout_rs=seq_mean_k1, which ignores the advantage's sign",
}
_STEP_WIDE = {
    "self_normalise": "a mean over the step is unknown: set rollout_correction.rollout_is_batch_normalize",
    "ppo_ewma": "ppo_ewma, whose clip is anchored at an average of the model's weights, has no pi_prox there",
    "off_policy_baseline": "VCPO's baseline, which needs whole groups and gradient norms, cannot be had",
    "learning_rate_scale": "VCPO's learning rate, which needs the step's row weights, cannot be had there",
    "select_high_entropy": "a threshold over the generation's entropies cannot be had there",
    "select_by_covariance": "a threshold over the generation cannot be had there: set loss_mode=clip_cov",
}
REFUSED = {
    **{name: _NO_MU.format(name, setting) for name, setting in _SETTINGS.items()},
    **{name: _ONE_BATCH.format(why) for name, why in _STEP_WIDE.items()},
    "kl_penalty": "verl hands its policy losses no ref_log_prob: set actor.use_kl_loss=True",
    "entropy_bonus": "verl hands its policy losses no entropies: set actor.entropy_coeff, verl's own",
    "slices": "verl's response_mask is 0 for a tool's token as for padding: slices are unknown",
    "routing_replay": "a policy loss comes after the forward, too late: set actor.router_replay.mode",
}
"""Objective or part of one -> why verl's policy losses cannot have it, and what to set instead."""

_ROW = 8
"""Loss tokens of a row below which equal weights prove nothing: coarse log-probabilities tie."""

_HOW = (
    "set algorithm.rollout_correction.rollout_is=token, rollout_is_threshold=1e9, "
    "rollout_is_batch_normalize=False, bypass_mode=False and rollout.calculate_log_probs=True"
)


def mu_of(name: str, old: torch.Tensor, weights: torch.Tensor | None, mask: torch.Tensor) -> torch.Tensor:
    """Return log mu (B, T), nats: log pi_old - log(weight), which holds for untruncated token weights alone.

    verl clamps log(pi_old/mu) to +-20 before it makes a weight, so mu is at most that far from pi_old. One
    truncated token of a micro-batch, and a batch normalisation, cannot be seen. Raises UnsupportedError when
    no weights arrive, when some are 0 inside the mask (a lower_upper threshold drops them), when those of
    each long row are one number (rollout_is=sequence), and when several equal the same largest short decimal
    (truncated there).
    """
    if weights is None:
        raise UnsupportedError(
            f"{name} needs pi_old/mu of each token, but no rollout_is_weights arrive: {_HOW}"
        )
    inside = weights[mask]
    if bool((inside <= 0).any()):
        raise UnsupportedError(
            f"{name} needs every token's weight, but some are 0 (a lower_upper threshold drops them): {_HOW}"
        )
    long = mask.sum(dim=1) >= _ROW
    top = torch.where(mask, weights, -torch.inf).amax(dim=1)
    low = torch.where(mask, weights, torch.inf).amin(dim=1)
    if bool(long.any()) and bool((top == low)[long].all()) and bool((top != 1)[long].any()):
        raise UnsupportedError(
            f"{name} needs token weights, but each row has one weight (rollout_is=sequence): {_HOW}"
        )
    if inside.numel():
        highest = inside.max()
        short = (
            torch.as_tensor(round(float(highest), 3), dtype=highest.dtype, device=highest.device) == highest
        )
        if bool(short & (highest > 1) & ((inside == highest).sum() > 1)):
            raise UnsupportedError(
                f"{name} needs untruncated weights, but they end at {float(highest):g}: {_HOW}"
            )
    return old.detach() - torch.log(torch.where(mask, weights, torch.ones_like(weights)))


def refuse_weights(name: str, weights: torch.Tensor | None) -> None:
    """Raise UnsupportedError when weights arrive for an ablation without one."""
    if weights is not None:
        raise UnsupportedError(
            f"{name} with importance=False has no weight, but rollout_is_weights arrive: "
            "set algorithm.rollout_correction.rollout_is=null"
        )
