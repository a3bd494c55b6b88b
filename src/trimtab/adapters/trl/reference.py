"""The reference policy of drift: the trainer's own, else the PEFT base model, else a copy of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.func import functional_call

from trimtab.objectives.weights.weight_shards import drop_gathered, exchanged, own_part

FSDP2 = "FSDP2"
"""Shards whose forward gathers them: every rank must score as many batches as the others."""
_MEMORY_FRACTION = 0.25  # of free device memory that the copy of the weights may take


class Reference:
    """Policy other than the live one, which scores rows.

    `name` says which policy it is. `reason` says why it cannot score; it is empty when it can. `in_batch` is
    True when the trainer already puts reference log-probabilities into its batch.
    """

    def __init__(
        self,
        name: str,
        *,
        in_batch: bool = False,
        reason: str = "",
        weights: dict[str, Any] | None = None,
        sharded: bool = False,
    ) -> None:
        self.name, self.in_batch, self.reason, self.weights = name, in_batch, reason, weights
        self.sharded = sharded  # the copy is of this rank's parts, taken when training begins

    def begin(self, trainer: Any) -> None:
        """Copy this rank's parts of weights that FSDP2 shards; training is about to begin."""
        if not self.sharded or self.weights is not None or self.reason:
            return
        if trainer.state.global_step:
            self.reason = (
                "beta is 0 and the run was resumed with weights sharded by FSDP2: the weights of its start "
                "are not here; set beta > 0"
            )
            return
        parameters = dict(trainer.model.named_parameters())
        self.weights = {name: own_part(one).clone() for name, one in parameters.items()}

    def score(self, trainer: Any, batch: Mapping[str, Any], rows: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities (rows, T) of the completion tokens under the reference."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self.weights is None:
            with quiet(model), _base_of(model):
                return forward_logps(trainer, model, batch, rows)
        if self.sharded:
            parameters = dict(model.named_parameters())
            with quiet(model), exchanged(parameters, self.weights, model):
                return forward_logps(trainer, model, batch, rows)
        device = next(model.parameters()).device
        if next(iter(self.weights.values())).device != device:
            self.weights = {name: weight.to(device) for name, weight in self.weights.items()}
        with quiet(model):
            return forward_logps(trainer, _Frozen(model, self.weights), batch, rows)


class _Frozen:
    """The live module with other weights, as a callable where TRL expects a model."""

    def __init__(self, module: Any, weights: dict[str, Any]) -> None:
        self.module, self.weights = module, weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.module, self.weights, args, kwargs, tie_weights=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


@contextmanager
def _base_of(model: Any) -> Iterator[None]:
    """Activate the adapter that TRL names "ref" (an existing adapter is trained further), else no adapter."""
    if "ref" not in model.peft_config:
        with model.disable_adapter():
            yield
        return
    active = model.active_adapter
    model.set_adapter("ref")
    try:
        yield
    finally:
        model.set_adapter(active)


def make_reference(trainer: Any, wanted: str) -> Reference:
    """Choose the reference of a GRPO trainer; the copy is taken now, so call it before training."""
    if wanted == "off":
        return Reference("none", reason="switched off with reference='off'")
    if trainer.beta != 0.0:
        return Reference("the trainer's own reference", in_batch=True)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "peft_config") and hasattr(model, "disable_adapter"):
        return Reference("the base model, PEFT adapter switched off")
    kind = sharded_by(trainer)
    if kind == FSDP2:
        return Reference("trimtab's own copy of the weights at the start", sharded=True)
    if kind:
        return Reference(
            "none",
            reason=f"beta is 0 and weights are sharded by {kind}: set beta > 0 to give drift a reference",
        )
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    device = next(model.parameters()).device
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        if size > _MEMORY_FRACTION * free:
            text = (
                f"beta is 0 and a copy of the weights ({size / 2**30:.1f} GiB) takes over a quarter of memory"
            )
            return Reference("none", reason=f"{text}: set beta > 0, or train a PEFT adapter")
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return Reference("trimtab's own copy of the weights at the start", weights=weights)


def sharded_by(trainer: Any) -> str:
    """Return the name of what splits the weights over ranks; empty where each rank has all of them."""
    kind = str(trainer.accelerator.distributed_type).rsplit(".", 1)[-1]
    if kind == "FSDP" and getattr(trainer.accelerator, "is_fsdp2", False):
        return FSDP2
    return kind if kind in ("DEEPSPEED", "FSDP", "MEGATRON_LM") else ""


def forward_logps(trainer: Any, model: Any, batch: Mapping[str, Any], rows: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities (rows, T) of the completion tokens under `model`, computed by TRL."""
    ids = torch.cat([batch["prompt_ids"][rows], batch["completion_ids"][rows]], dim=1)
    mask = torch.cat([batch["prompt_mask"][rows], batch["completion_mask"][rows]], dim=1)
    method = type(trainer)._get_per_token_logps_and_entropies
    method = getattr(method, "__wrapped__", method)  # past TRL's profiling decorator: this is not its time
    size = trainer.args.per_device_train_batch_size
    width = batch["completion_ids"].size(1)
    logps: torch.Tensor = method(trainer, model, ids, mask, width, batch_size=size)[0]
    return logps


class RowSampler:
    """Draws a random fraction of all rows; the remainder of one micro-batch is carried to the next."""

    def __init__(self, fraction: float, seed: int) -> None:
        self.fraction, self.rng = fraction, np.random.default_rng(seed)
        self.owed = 1.0 - fraction if 0 < fraction < 1 else 0.0  # the first row is scored

    def pick(self, num_rows: int) -> torch.Tensor:
        """Return sorted indices among `num_rows` rows; may be empty."""
        self.owed += self.fraction * num_rows
        count = min(num_rows, int(self.owed + 1e-9))
        self.owed -= count
        return torch.from_numpy(np.sort(self.rng.choice(num_rows, count, replace=False)))


@contextmanager
def quiet(module: Any) -> Iterator[None]:
    """Switch off dropout, checkpointing and gradients; restore the training flags of all submodules, and free
    what FSDP2 left gathered."""
    flags = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for child, flag in flags:
            child.training = flag
        drop_gathered(module)
