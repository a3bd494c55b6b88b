"""Levers of a GRPOTrainer: for each one how its value is read and how it is put in force.

A lever that would change nothing in this trainer is not offered: no KL coefficient without a reference, no
cap on weights without the sampler's log-probabilities, no clip where the ratio is 1 by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from trimtab.adapters.trl.control.weight_caps import WeightCaps
from trimtab.types import Lever

OFF = 1e-30
"""A KL coefficient of zero: TRL would stop scoring the reference at exactly 0."""


class LeverPort(NamedTuple):
    """How one lever of one trainer is read and set. `slices` it can be turned for, `all` included."""

    slices: tuple[str, ...]
    get: Callable[[str], float]
    set: Callable[[str, float], None]


@runtime_checkable
class RolloutSource(Protocol):
    """What a rollout_func may offer besides being called, so that a guard reaches its queue."""

    max_lag: float
    """Oldest rollout that it returns, in policy versions; math.inf: any."""

    def resynchronise(self, trainer: Any) -> None:
        """Sample with the trainer's weights of now, and drop rollouts of other versions: it was restored."""
        ...


def attribute_port(owner: Any, name: str, *, shift: float = 0.0) -> LeverPort:
    """Return a port to one number of an object; `shift` is subtracted when it is read."""

    def read(_slice: str) -> float:
        value = getattr(owner, name)
        return math.inf if value is None else float(value) - shift

    def write(_slice: str, value: float) -> None:
        setattr(owner, name, value + shift)

    return LeverPort(("all",), read, write)


def grpo_ports(trainer: Any, caps: WeightCaps, buffer: BufferLag) -> dict[Lever, LeverPort]:
    """Return the ports of a GRPOTrainer, less `lr_scale`, which the optimizer has.

    A MiniRLTrainer brings those of its own loss (`guard_ports`).
    """
    ports = {} if hasattr(trainer, "guard_ports") else _plain_ports(trainer, caps)
    if caps.has_mu:
        ports["sequence_is_cap"] = attribute_port(caps, "sequence")
    source = trainer.rollout_func
    if isinstance(source, RolloutSource):
        ports["max_lag"] = attribute_port(source, "max_lag")
    elif buffer.lasts:
        ports["max_lag"] = attribute_port(buffer, "max_lag")
    return ports


def _plain_ports(trainer: Any, caps: WeightCaps) -> dict[Lever, LeverPort]:
    """Ports to what TRL's own loss reads."""
    ports: dict[Lever, LeverPort] = {}
    if trainer.beta != 0.0:
        ports["kl_coef"] = kl_port(trainer)
    if trainer.use_vllm and trainer.vllm_importance_sampling_correction:
        if trainer.vllm_importance_sampling_mode.startswith("token"):
            ports["token_is_cap"] = attribute_port(trainer, "vllm_importance_sampling_clip_max")
    elif caps.has_mu and caps.by_token:
        ports["token_is_cap"] = attribute_port(caps, "token")
    if clips(trainer) and trainer.loss_type not in ("sapo", "vespo"):
        shift = 1.0 if trainer.loss_type == "cispo" else 0.0
        ports["clip_range"] = attribute_port(trainer, "epsilon_high", shift=shift)
    return ports


def clips(trainer: Any) -> bool:
    """Return whether pi_theta/pi_old can differ from 1: TRL's rule for scoring pi_old."""
    lasting = trainer.args.steps_per_generation * trainer.num_iterations
    return bool(trainer.args.gradient_accumulation_steps % lasting != 0 or trainer.use_vllm)


def kl_port(trainer: Any) -> LeverPort:
    """Return the port to `beta` of a trainer."""

    def read(_slice: str) -> float:
        return 0.0 if trainer.beta == OFF else float(trainer.beta)

    def write(_slice: str, value: float) -> None:
        trainer.beta = max(value, OFF)

    return LeverPort(("all",), read, write)


class BufferLag:
    """Bounds the age of the generations that TRL trains on again and again: older ones are sampled anew.

    The age is in optimizer steps since the generation. `max_lag` is infinite until it is set.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.max_lag = trainer, math.inf
        self._buffer: Any = None
        self._generated = 0
        self._inner = trainer._prepare_inputs
        trainer._prepare_inputs = self._prepare

    @property
    def lasts(self) -> bool:
        """Is a generation trained on in more than one optimizer step?"""
        args = self.trainer.args
        return bool(
            args.steps_per_generation * self.trainer.num_iterations > args.gradient_accumulation_steps
        )

    def _prepare(self, batch: Mapping[str, Any]) -> Any:
        trainer = self.trainer
        if not trainer.model.training:
            return self._inner(batch)
        if trainer.state.global_step - self._generated > self.max_lag:
            trainer._buffered_inputs = None
        inputs = self._inner(batch)
        if trainer._buffered_inputs is not self._buffer:
            self._buffer, self._generated = trainer._buffered_inputs, trainer.state.global_step
        return inputs
