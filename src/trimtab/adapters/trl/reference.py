"""The reference of drift, in this order: the trainer's own, the PEFT base, our own copy of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.func import functional_call

_MEMORY_SHARE = 0.25  # of free device memory that our own copy may take


class Reference:
    """Scores rows with a policy other than the live one. `name` says which; `reason` says why it cannot, when empty it can.

    `in_batch` is True when the trainer already puts reference log-probabilities into its batch.
    """

    def __init__(
        self, name: str, *, in_batch: bool = False, reason: str = "", weights: dict[str, Any] | None = None
    ) -> None:
        self.name, self.in_batch, self.reason, self.weights = name, in_batch, reason, weights

    def score(self, trainer: Any, batch: Mapping[str, Any], rows: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (rows, T) of the completion tokens under the reference, without gradient."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self.weights is None:
            with quiet(model), _base_of(model):
                return forward_logps(trainer, model, batch, rows)
        device = next(model.parameters()).device
        if next(iter(self.weights.values())).device != device:
            self.weights = {name: weight.to(device) for name, weight in self.weights.items()}
        with quiet(model):
            return forward_logps(trainer, _Frozen(model, self.weights), batch, rows)


class _Frozen:
    """A callable that stands where TRL expects a model: the live module with other weights."""

    def __init__(self, module: Any, weights: dict[str, Any]) -> None:
        self.module, self.weights = module, weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.module, self.weights, args, kwargs, tie_weights=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


@contextmanager
def _base_of(model: Any) -> Iterator[None]:
    """The adapter TRL keeps under the name "ref" when an existing adapter is trained further, else no adapter."""
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
    kind = str(trainer.accelerator.distributed_type).rsplit(".", 1)[-1]
    if kind in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        return Reference(
            "none",
            reason=f"beta is 0 and weights are sharded by {kind}: set beta > 0 to give drift a reference",
        )
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    device = next(model.parameters()).device
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        if size > _MEMORY_SHARE * free:
            text = f"beta is 0 and a copy of the weights ({size / 2**30:.1f} GiB) would take over a quarter of free memory"
            return Reference("none", reason=f"{text}: set beta > 0, or train a PEFT adapter")
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return Reference("trimtab's own copy of the weights at the start", weights=weights)


def forward_logps(trainer: Any, model: Any, batch: Mapping[str, Any], rows: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (rows, T) of the completion tokens under `model`, with TRL's own arithmetic."""
    ids = torch.cat([batch["prompt_ids"][rows], batch["completion_ids"][rows]], dim=1)
    mask = torch.cat([batch["prompt_mask"][rows], batch["completion_mask"][rows]], dim=1)
    method = type(trainer)._get_per_token_logps_and_entropies
    method = getattr(method, "__wrapped__", method)  # past TRL's profiling decorator: this is not its time
    size = trainer.args.per_device_train_batch_size
    logps: torch.Tensor = method(trainer, model, ids, mask, batch["completion_ids"].size(1), batch_size=size)[
        0
    ]
    return logps


class RowSampler:
    """Random rows, `share` of all rows that pass: what one micro-batch cannot give whole is carried to the next."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.rng = share, np.random.default_rng(seed)
        self.owed = 1.0 - share if 0 < share < 1 else 0.0  # the first row is scored

    def pick(self, num_rows: int) -> torch.Tensor:
        """Sorted places among `num_rows` rows; may be empty."""
        self.owed += self.share * num_rows
        count = min(num_rows, int(self.owed + 1e-9))
        self.owed -= count
        return torch.from_numpy(np.sort(self.rng.choice(num_rows, count, replace=False)))


@contextmanager
def quiet(module: Any) -> Iterator[None]:
    """No dropout, no gradient checkpointing, no gradient; every submodule gets its training flag back."""
    flags = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for child, flag in flags:
            child.training = flag
