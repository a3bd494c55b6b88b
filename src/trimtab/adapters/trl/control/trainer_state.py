"""All of a trainer's state, written to a folder and read back; no pickle is read from disk.

    weights.safetensors   parameters, shared ones once, and buffers; with `lora` those that are trained
    optimizer.pt          optimizer, scheduler, gradient scaler; MiniRL's weight average, entropy bonus
    random.pt             random numbers of Python, numpy and torch
    position.pt           step, position in the data, and TRL's open generation buffer

`.pt` files hold tensors and plain values and are loaded with weights_only. Everything is read and checked
before the trainer is touched.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from trimtab.errors import RunError

Mode = Literal["full", "lora", "weights"]
"""`full`: everything. `lora`: of the weights only those that are trained. `weights`: the trained weights
alone; the optimizer's momentum starts anew after a restore."""

_WEIGHTS, _OPTIMIZER, _RANDOM, _POSITION = "weights.safetensors", "optimizer.pt", "random.pt", "position.pt"


def live_tensors(trainer: Any, mode: Mode) -> dict[str, torch.Tensor]:
    """Return the tensors of the policy that a state holds: parameters, and for `full` the saved buffers."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if mode != "full":
        return {name: p.data for name, p in model.named_parameters() if p.requires_grad}
    tensors = {name: p.data for name, p in model.named_parameters()}
    stored = model.state_dict()
    return tensors | {name: buffer for name, buffer in model.named_buffers() if name in stored}


def state_bytes(trainer: Any, mode: Mode) -> int:
    """Return about how large a state will be: weights, and two moments of what is trained."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    weights = sum(t.numel() * t.element_size() for t in live_tensors(trainer, mode).values())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    average = 1 if getattr(trainer, "average", None) is not None else 0
    return int(weights + (0 if mode == "weights" else (2 + average) * trained))


def save_state(trainer: Any, folder: Path, mode: Mode, position: dict[str, Any]) -> None:
    """Write the trainer's state. Raises OSError where the disk takes no more."""
    with _as_os_error(folder):
        tensors = {name: tensor.contiguous() for name, tensor in live_tensors(trainer, mode).items()}
        save_file(tensors, folder / _WEIGHTS)
        scaler, average, bonus = _extras(trainer)
        torch.save(
            {
                "optimizer": None if mode == "weights" else trainer.optimizer.state_dict(),
                "scheduler": trainer.lr_scheduler.state_dict(),
                "scaler": None if scaler is None else scaler.state_dict(),
                "average": None if average is None else average.state_dict(),
                "bonus": None if bonus is None else bonus.state_dict(),
            },
            folder / _OPTIMIZER,
        )
        torch.save(random_state(), folder / _RANDOM)
        torch.save(position, folder / _POSITION)


def load_state(trainer: Any, folder: Path, mode: Mode) -> dict[str, Any]:
    """Put a state into the trainer: weights, optimizer, scheduler and the rest, less random numbers.

    Returns the position that was saved. Raises RunError where the state belongs to another model.
    """
    try:
        saved = load_file(folder / _WEIGHTS)
        rest = torch.load(folder / _OPTIMIZER, map_location="cpu", weights_only=True)
        position: dict[str, Any] = torch.load(folder / _POSITION, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, SafetensorError, UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"the state in {folder} cannot be read: {reason}") from error
    live = live_tensors(trainer, mode)
    for name in sorted(set(saved) ^ set(live)):
        where = "the model" if name in saved else "the saved state"
        raise RunError(
            f"{name} is not in {where}: {folder} is of another model, or was saved in another mode"
        )
    for name, tensor in saved.items():
        if tensor.shape != live[name].shape:
            raise RunError(
                f"{name} was saved as {tuple(tensor.shape)}, the model has {tuple(live[name].shape)}"
            )
    with torch.no_grad():
        for name, tensor in saved.items():
            live[name].copy_(tensor)
    _load_optimizer(trainer, rest)
    return position


def _load_optimizer(trainer: Any, rest: dict[str, Any]) -> None:
    if rest["optimizer"] is None:
        inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        inner.state.clear()  # momentum starts anew
    else:
        trainer.optimizer.load_state_dict(rest["optimizer"])
    trainer.lr_scheduler.load_state_dict(rest["scheduler"])
    for group, rate in zip(trainer.optimizer.param_groups, trainer.lr_scheduler.get_last_lr(), strict=False):
        group["lr"] = rate
    for part, name in zip(_extras(trainer), ("scaler", "average", "bonus"), strict=True):
        if part is not None and rest[name] is not None:
            part.load_state_dict(rest[name])


def _extras(trainer: Any) -> tuple[Any, Any, Any]:
    """Gradient scaler, weight average and entropy controller; None for those the trainer has not."""
    return (
        trainer.accelerator.scaler,
        getattr(trainer, "average", None),
        getattr(trainer, "bonus", None),
    )


def random_state() -> dict[str, Any]:
    """Return the state of all random numbers, as tensors and plain values."""
    version, numbers, gauss = random.getstate()
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 (users and libraries draw from it)
    name, keys, index, has_gauss, cached = numpy_state
    state: dict[str, Any] = {
        "python": [version, torch.tensor(numbers, dtype=torch.int64), gauss],
        "numpy": [
            str(name),
            torch.from_numpy(keys.astype(np.int64)),
            int(index),
            int(has_gauss),
            float(cached),
        ],
        "torch": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def load_random_state(folder: Path) -> None:
    """Set all random numbers to where they were."""
    state = torch.load(folder / _RANDOM, map_location="cpu", weights_only=True)
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.random.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def reseed(seed: int) -> None:
    """Start all random numbers anew."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


@contextmanager
def _as_os_error(folder: Path) -> Iterator[None]:
    """torch and safetensors have errors of their own for a full disk."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(f"{folder}: {str(error).splitlines()[0]}") from error
