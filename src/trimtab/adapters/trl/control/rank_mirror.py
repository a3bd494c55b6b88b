"""A restored state on the other ranks: they take weights, optimizer and the rest from rank 0, over the group.

States are written by rank 0 alone, and nodes need not share a disk. Every rank calls `mirror` at the same
point; the tensors are those of replicated training, so all ranks have the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import broadcast, broadcast_object_list

from trimtab.adapters.trl.control.trainer_state import Mode, live_tensors


def share(text: str) -> str:
    """Return on every rank the text that rank 0 passed in."""
    texts = [text]
    broadcast_object_list(texts, from_process=0)
    return texts[0]


def mirror(trainer: Any, mode: Mode) -> None:
    """Give every rank what rank 0 has: weights, optimizer, scheduler, scaler, weight average."""
    leads = trainer.accelerator.process_index == 0
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    parts = [trainer.lr_scheduler, trainer.accelerator.scaler, getattr(trainer, "bonus", None)]
    average = getattr(trainer, "average", None)
    numbers: list[Any] = [None if part is None else part.state_dict() for part in parts]
    numbers.append(None if average is None else (average.weight, average.updates, average.centre_of_mass))
    numbers.append([group["lr"] for group in optimizer.param_groups])
    broadcast_object_list(numbers, from_process=0)
    if not leads:
        for part, state in zip(parts, numbers[:3], strict=True):
            if part is not None:
                part.load_state_dict(state)
        if average is not None:
            average.weight, average.updates, average.centre_of_mass = numbers[3]
        for group, rate in zip(optimizer.param_groups, numbers[4], strict=True):
            group["lr"] = rate
        if mode == "weights":
            optimizer.state.clear()
    tensors = [*live_tensors(trainer, mode).values(), *([] if average is None else average.average.values())]
    for tensor in (*tensors, *_moments(optimizer)):
        _copy_from_first(tensor, trainer.accelerator.device)


def _moments(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            yield from (state[name] for name in sorted(state) if isinstance(state[name], torch.Tensor))


@torch.no_grad()
def _copy_from_first(tensor: torch.Tensor, device: torch.device) -> None:
    """Step counters of AdamW lie on the CPU, which the group of a GPU job does not reach."""
    there = tensor.to(device, copy=True).contiguous()
    broadcast(there, from_process=0)
    tensor.copy_(there)
