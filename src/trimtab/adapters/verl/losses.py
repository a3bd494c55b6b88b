"""Each objective as one call of `trimtab.objectives` on the columns verl gives, and that as a function of verl's seven keywords."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from trimtab.adapters.verl.translate import MODES, Columns, columns_of, metrics_of
from trimtab.adapters.verl.unsupported import mu_of, refuse_weights
from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives import (
    Loss,
    cispo,
    decoupled_kl,
    decoupled_ppo,
    minirl,
    ppo_clip,
    reinforce,
)

PolicyLoss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]


@dataclass(frozen=True)
class Objective:
    """`loss` of the columns and the numbers; `modes`: the loss_agg_mode it is defined for; `mu`: does it need the sampler's log-probabilities?

    `numbers`: what verl has no setting for, with the paper's values; `required`: those without one.
    """

    loss: Callable[..., Loss]
    modes: tuple[str, ...] = MODES
    mu: bool = False
    numbers: dict[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()


def _minirl(c: Columns, **numbers: Any) -> Loss:
    return minirl(
        c.logprobs, c.old, c.mu, c.advantages, c.mask, denominator=c.denominator, eps_low=c.low, eps_high=c.high,
        length_norm=c.lengths is not None, **numbers,
    )  # fmt: skip


def _reinforce(c: Columns) -> Loss:
    return reinforce(c.logprobs, c.advantages, c.mask, weights=c.weights, **c.divided)


def _clipped(c: Columns, **kind: Any) -> Loss:
    return ppo_clip(
        c.logprobs, c.old, c.advantages, c.mask, eps_low=c.low, eps_high=c.high, weights=c.weights, **c.divided, **kind
    )  # fmt: skip


def _ppo(c: Columns) -> Loss:
    return _clipped(c, dual=c.dual)


def _gspo(c: Columns) -> Loss:
    return _clipped(c, level="sequence")


def _cispo(c: Columns) -> Loss:
    return cispo(
        c.logprobs, c.old, c.advantages, c.mask, denominator=c.denominator, low=1 - c.low, high=1 + c.high, weights=c.weights
    )  # fmt: skip


def _decoupled(c: Columns, **numbers: Any) -> Loss:
    assert c.mu is not None
    return decoupled_ppo(
        c.logprobs, c.old, c.mu, c.advantages, c.mask, eps_low=c.low, eps_high=c.high, **c.divided, **numbers
    )  # fmt: skip


def _decoupled_kl(c: Columns, **numbers: Any) -> Loss:
    assert c.mu is not None
    return decoupled_kl(c.logprobs, c.old, c.mu, c.advantages, c.mask, **c.divided, **numbers)


OBJECTIVES: dict[str, Objective] = {
    "minirl": Objective(
        _minirl, ("seq-mean-token-sum", "seq-mean-token-mean"), mu=True,
        numbers={"cap": 5.0, "importance": True, "clip": True},
    ),
    "reinforce": Objective(_reinforce),
    "ppo": Objective(_ppo),
    "grpo": Objective(_clipped, ("seq-mean-token-mean",)),
    "dr_grpo": Objective(_clipped, ("seq-mean-token-sum-norm",)),
    "dapo": Objective(_clipped, ("token-mean",)),
    "gspo": Objective(_gspo, ("seq-mean-token-mean",)),
    "cispo": Objective(_cispo, ("token-mean",)),
    "decoupled": Objective(_decoupled, mu=True, numbers={"cap": 100.0}),
    "decoupled_kl": Objective(_decoupled_kl, mu=True, numbers={"cap": 100.0, "estimator": "k2"}, required=("beta",)),
}  # fmt: skip
"""What verl's signature can carry. decoupled anchors at pi_old, verl's recomputed snapshot; an average of weights cannot be had."""


def policy_loss(objective: str, **numbers: Any) -> PolicyLoss:
    """The objective as a verl policy loss: seven keywords in, (loss with gradient, metrics) out.

    The first use raises UnsupportedError where actor.loss_agg_mode is not the objective's own denominator, and, for an objective that
    needs mu, where no untruncated token weights arrive. Metrics are tokens, `actor/trimtab/<mark>` of `actor/trimtab/tokens`: verl
    averages over micro-batches, and the quotient of two such means is the share of the step.
    """
    own = OBJECTIVES[objective]
    missing = [name for name in own.required if name not in numbers]
    unknown = [name for name in numbers if name not in own.numbers and name not in own.required]
    if missing or unknown:
        known = ", ".join((*own.required, *own.numbers)) or "none"
        raise ObjectiveError(f"{objective} takes the numbers {known}; {', '.join(missing or unknown)} "
                             f"{'must be given' if missing else 'is not one'}")  # fmt: skip
    settled = {**own.numbers, **numbers}
    needs_mu = own.mu and settled.get("importance", True)
    name = f"trimtab_{objective}"

    def loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        if config is None:
            raise ObjectiveError(
                f"{name} needs config, the actor's settings: clip_ratio_low, clip_ratio_high"
            )
        if loss_agg_mode not in own.modes:
            raise UnsupportedError(
                f"{name} is not defined for loss_agg_mode={loss_agg_mode!r}: set actor.loss_agg_mode={own.modes[0]}"
            )
        mask = response_mask.bool()
        mu = None
        if needs_mu:
            mu = mu_of(name, old_log_prob, rollout_is_weights, mask)
        elif own.mu:
            refuse_weights(name, rollout_is_weights)
        given = (log_prob, old_log_prob, mu, advantages, mask, rollout_is_weights)
        columns = columns_of(config, loss_agg_mode, *given)
        found = own.loss(columns, **settled)
        return found.value, metrics_of(columns, found)

    loss.__name__ = name
    return loss
