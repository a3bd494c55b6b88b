"""Objectives of trimtab as verl policy losses, and their registration in verl's table.

A policy loss is a function of verl's seven keywords. Each is one call of `trimtab.objectives` on the columns
that verl gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from trimtab.adapters.verl.micro_batch import MODES, Columns, clip_settings, divisor, metrics_of
from trimtab.adapters.verl.unsupported import REFUSED, mu_of, refuse_weights
from trimtab.errors import ObjectiveError, UnsupportedError
from trimtab.objectives import Loss, cispo, decoupled_kl, decoupled_ppo, minirl, ppo_clip, reinforce

PolicyLoss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]


@dataclass(frozen=True)
class Objective:
    """One objective as verl can have it."""

    loss: Callable[..., Loss]  # of the columns and the numbers
    modes: tuple[str, ...] = MODES  # values of loss_agg_mode it is defined for
    mu: bool = False  # it needs the sampler's log-probabilities
    numbers: dict[str, Any] = field(default_factory=dict)  # verl has no setting for them: the paper's values
    required: tuple[str, ...] = ()  # numbers without a default


def _minirl(c: Columns, **numbers: Any) -> Loss:
    rest = {**c.clip, "length_norm": c.lengths is not None, **numbers}
    return minirl(c.logprobs, c.old, c.mu, c.advantages, c.mask, denominator=c.denominator, **rest)


def _reinforce(c: Columns) -> Loss:
    return reinforce(c.logprobs, c.advantages, c.mask, weights=c.weights, **c.divided)


def _clipped(c: Columns, **kind: Any) -> Loss:
    return ppo_clip(c.logprobs, c.old, c.advantages, c.mask, weights=c.weights, **c.clip, **c.divided, **kind)


def _ppo(c: Columns) -> Loss:
    return _clipped(c, dual=c.dual)


def _gspo(c: Columns) -> Loss:
    return _clipped(c, level="sequence")


def _cispo(c: Columns) -> Loss:
    bounds: dict[str, Any] = {"denominator": c.denominator, "low": 1 - c.low, "high": 1 + c.high}
    return cispo(c.logprobs, c.old, c.advantages, c.mask, weights=c.weights, **bounds)


def _decoupled(c: Columns, **numbers: Any) -> Loss:
    assert c.mu is not None
    return decoupled_ppo(c.logprobs, c.old, c.mu, c.advantages, c.mask, **c.clip, **c.divided, **numbers)


def _decoupled_kl(c: Columns, **numbers: Any) -> Loss:
    assert c.mu is not None
    return decoupled_kl(c.logprobs, c.old, c.mu, c.advantages, c.mask, **c.divided, **numbers)


_ROW_SUMS, _ROW_MEANS, _TOKEN_MEAN = "seq-mean-token-sum", "seq-mean-token-mean", "token-mean"
_MINIRL = {"cap": 5.0, "importance": True, "clip": True}
_KL = {"cap": 100.0, "estimator": "k2"}
OBJECTIVES: dict[str, Objective] = {
    "minirl": Objective(_minirl, (_ROW_SUMS, _ROW_MEANS), mu=True, numbers=_MINIRL),
    "reinforce": Objective(_reinforce),
    "ppo": Objective(_ppo),
    "grpo": Objective(_clipped, (_ROW_MEANS,)),
    "dr_grpo": Objective(_clipped, ("seq-mean-token-sum-norm",)),
    "dapo": Objective(_clipped, (_TOKEN_MEAN,)),
    "gspo": Objective(_gspo, (_ROW_MEANS,)),
    "cispo": Objective(_cispo, (_TOKEN_MEAN,)),
    "decoupled": Objective(_decoupled, mu=True, numbers={"cap": 100.0}),
    "decoupled_kl": Objective(_decoupled_kl, mu=True, numbers=_KL, required=("beta",)),
}
"""Objectives that verl's signature can carry. decoupled anchors at pi_old: verl has no average of weights."""


def register(*names: str, **numbers: Any) -> tuple[str, ...]:
    """Put `trimtab_<name>` into verl's POLICY_LOSS_REGISTRY.

    Bounds of the clip, the dual clip and the denominator are verl's own settings (actor.clip_ratio_low,
    clip_ratio_high, clip_ratio_c, loss_agg_mode).

    Args:
        *names: Objectives, keys of `OBJECTIVES`. None: all that need no number.
        **numbers: What verl has no setting for, with one objective: minirl `cap` (5, a ratio), `importance`,
            `clip`; decoupled `cap` (100); decoupled_kl `beta` (nats to loss), `cap`, `estimator`.

    Returns:
        The registered names, for `actor.policy_loss.loss_mode`.

    Raises:
        UnsupportedError: The objective needs what verl's policy losses are not given, or verl is not
            installed.
        ObjectiveError: An unknown name or number.

    Example:
        >>> register("minirl", cap=3.0)  # doctest: +SKIP
        ('trimtab_minirl',)
        >>> register("veto")
        Traceback (most recent call last):
        trimtab.errors.UnsupportedError: verl hands its policy losses no rollout log-probabilities, ...

    Reference:
        verl 0.9, verl/trainer/ppo/core_algos.py, `register_policy_loss`.
    """
    for name in names:
        if name in REFUSED:
            raise UnsupportedError(REFUSED[name])
        if name not in OBJECTIVES:
            raise ObjectiveError(f"no objective is called {name!r}; verl can have {', '.join(OBJECTIVES)}")
    if numbers and len(names) != 1:
        raise ObjectiveError(
            f"{', '.join(numbers)}: give numbers with one objective, register('minirl', cap=5.0)"
        )
    chosen = names or tuple(name for name, own in OBJECTIVES.items() if not own.required)
    losses = {f"trimtab_{name}": policy_loss(name, **numbers) for name in chosen}
    try:
        from verl.trainer.ppo.core_algos import register_policy_loss
    except ModuleNotFoundError as missing:
        raise UnsupportedError(
            f"trimtab.adapters.verl needs verl 0.9 or later; {missing.name} is missing: pip install verl"
        ) from missing
    for name, loss in losses.items():
        register_policy_loss(name)(loss)
    return tuple(losses)


def policy_loss(objective: str, **numbers: Any) -> PolicyLoss:
    """Return the objective as a verl policy loss: seven keywords in, (loss with gradient, metrics) out.

    The first use raises UnsupportedError where actor.loss_agg_mode is not the objective's own denominator,
    and, for an objective that needs mu, where no untruncated token weights arrive. Metrics are tokens:
    `actor/trimtab/<mark>` of `actor/trimtab/tokens`. verl averages over micro-batches; the quotient of two
    such means is the step's fraction.
    """
    own = OBJECTIVES[objective]
    missing = [name for name in own.required if name not in numbers]
    unknown = [name for name in numbers if name not in own.numbers and name not in own.required]
    if missing or unknown:
        known = ", ".join((*own.required, *own.numbers)) or "none"
        problem = f"{', '.join(missing)} must be given" if missing else f"{', '.join(unknown)} is not one"
        raise ObjectiveError(f"{objective} takes the numbers {known}; {problem}")
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
                f"{name} is not defined for loss_agg_mode={loss_agg_mode!r}: "
                f"set actor.loss_agg_mode={own.modes[0]}"
            )
        mask = response_mask.bool()
        mu = None
        if needs_mu:
            mu = mu_of(name, old_log_prob, rollout_is_weights, mask)
        elif own.mu:
            refuse_weights(name, rollout_is_weights)
        columns = Columns(
            log_prob, old_log_prob, mu, advantages, mask, rollout_is_weights,
            *divisor(loss_agg_mode, mask, config.global_batch_info), *clip_settings(config),
        )  # fmt: skip
        result = own.loss(columns, **settled)
        return result.value, metrics_of(columns, result)

    loss.__name__ = name
    return loss
