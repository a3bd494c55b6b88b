"""What a verl policy loss is not given, objective by objective, and what its seventh argument must be before mu can be read off it.

A policy loss sees one micro-batch of one rank: pi_old, pi_theta, advantages, one mask, the actor's settings, and weights that were made
of pi_old/mu. It sees no mu, no reference, no entropies, no weights of the model, no other rows of a group, and its mask says 0 for
a tool's token, for padding and for a rejected token alike.
"""

from __future__ import annotations

import torch

from trimtab.errors import UnsupportedError

_NO_MU = "verl hands its policy losses no rollout log-probabilities, so {} cannot be decided there: set algorithm.rollout_correction.{}"
_BATCH = "a verl policy loss sees one micro-batch of one rank, so {}"

REFUSED = {
    "tis": _NO_MU.format("tis", "rollout_is and rollout_is_threshold; its weights multiply every trimtab loss"),
    "mis": _NO_MU.format("mis", "rollout_rs=token_k1 or seq_sum_k1 with bounds, and rollout_is"),
    "icepop": _NO_MU.format("icepop", "rollout_is=token with rollout_is_threshold=0.5_5.0"),
    "k3_rejection": _NO_MU.format("k3_rejection", "rollout_rs=seq_mean_k3 or token_k3"),
    "reject_nonfinite": _NO_MU.format("reject_nonfinite", "rollout_rs, whose comparisons with NaN reject the token"),
    "veto": _NO_MU.format("veto", "rollout_rs=seq_max_k2 or seq_max_k3, verl's nearest filters"),
    "off_policy_rejection": _NO_MU.format("off_policy_rejection", "rollout_rs=seq_mean_k1, which ignores the advantage's sign"),
    "self_normalise": _BATCH.format("a mean of weights over the step is unknown: set rollout_correction.rollout_is_batch_normalize"),
    "ppo_ewma": _BATCH.format("ppo_ewma, whose clip is anchored at an average of the model's weights, has no pi_prox there"),
    "off_policy_baseline": _BATCH.format("VCPO's baseline, which needs whole groups and gradient norms, cannot be had there"),
    "learning_rate_scale": _BATCH.format("VCPO's learning rate, which needs the step's row weights, cannot be had there"),
    "select_high_entropy": _BATCH.format("a threshold over the generation's entropies cannot be had there"),
    "select_by_covariance": _BATCH.format("a threshold over the generation cannot be had there: verl has loss_mode=clip_cov"),
    "kl_penalty": "verl hands its policy losses no ref_log_prob: set actor.use_kl_loss=True, which verl adds itself",
    "entropy_bonus": "verl hands its policy losses no entropies: set actor.entropy_coeff, which verl adds itself",
    "slices": "verl's response_mask says 0 for a tool's token as for padding, so numbers by slice (text, post_tool) cannot be told apart",
    "routing_replay": "a policy loss comes after the forward, too late to route it: set actor.router_replay.mode",
}  # fmt: skip
"""Objective or part of one -> why verl's policy losses cannot have it, and what to set instead."""

_ROW = 8
"""Loss tokens of a row below which equal weights prove nothing: low-precision log-probabilities of short answers tie."""

_HOW = (
    "set algorithm.rollout_correction.rollout_is=token, rollout_is_threshold=1e9, rollout_is_batch_normalize=False, "
    "bypass_mode=False and rollout.calculate_log_probs=True"
)


def mu_of(name: str, old: torch.Tensor, weights: torch.Tensor | None, mask: torch.Tensor) -> torch.Tensor:
    """log mu (B, T), nats, read off verl's weights: log pi_old - log(pi_old/mu), which holds for untruncated token weights alone.

    verl clamps log(pi_old/mu) to +-20 before it makes a weight, so mu is that far from pi_old at most. Raises UnsupportedError when no weights arrive, when some are 0 inside the mask (dropped by a lower_upper threshold), when
    those of each long row are one number (rollout_is=sequence), and when several stand at exactly the same largest
    short decimal (truncated there). One truncated token of a micro-batch, and a batch normalisation, cannot be seen.
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
    """UnsupportedError when weights arrive for an ablation that has none: dropping them silently would be another algorithm."""
    if weights is not None:
        raise UnsupportedError(
            f"{name} with importance=False has no weight, but rollout_is_weights arrive: set algorithm.rollout_correction.rollout_is=null"
        )
