"""TrlControls: a TRL trainer as a guard turns it. See `trimtab.guard.controls` for the levers.

The counter of optimizer steps goes on after a rollback. Weights, optimizer, schedule and weight average are
those of the restored step; the data go on where they are, with new random numbers, so that the batch that led
to trouble is not drawn again. `resume` instead repeats what was, number for number.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import TrainerCallback

from trimtab.adapters.trl.control.data_order import DataOrder
from trimtab.adapters.trl.control.lever_ports import BufferLag, LeverPort, RolloutSource, grpo_ports
from trimtab.adapters.trl.control.task_outcomes import restore_tasks, task_state
from trimtab.adapters.trl.control.tool_ports import tool_ports
from trimtab.adapters.trl.control.trainer_state import (
    Mode,
    load_random_state,
    load_state,
    reseed,
    save_state,
    state_bytes,
)
from trimtab.adapters.trl.control.weight_caps import WeightCaps
from trimtab.adapters.trl.reference import sharded_by
from trimtab.errors import RunError, UnsupportedError
from trimtab.tools.exclusion import Exclusion
from trimtab.types import Lever

log = logging.getLogger("trimtab")


class TrlControls(TrainerCallback):
    """Controls of one GRPOTrainer. Make it before the watch, so that the watch sees batches as TRL made them.

    Args:
        trainer: A GRPOTrainer or a MiniRLTrainer.
        mode: What a saved state holds. None: `lora` for a PEFT model, else `full`.
        exclusion: Which failed calls break an episode, where a guard may quarantine tools. None: levers of
            tools are not offered, and generation is left as it is.

    Raises:
        UnsupportedError: `trainer` is not a GRPOTrainer.
    """

    def __init__(self, trainer: Any, mode: Mode | None = None, exclusion: Exclusion | None = None) -> None:
        if not isinstance(trainer, trl.GRPOTrainer):
            raise UnsupportedError(
                f"a guard acts on GRPOTrainer, got {type(trainer).__name__}: use guard='observe'"
            )
        self.trainer = trainer
        peft = hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config")
        self.mode: Mode = mode or ("lora" if peft else "full")
        self.before_update: Callable[[int, float, float | None], bool] | None = None
        """Called before each update with its step, its gradient norm and the ESS fraction of its raw sequence
        weights (None without the sampler's log-probabilities); False leaves the update out."""
        self.num_skipped = 0
        self.restores: list[dict[str, Any]] = []
        """What each restore did: step, seed, position in the data."""
        self._lr_scale = 1.0
        self._norm = math.nan
        self._stopping = False
        self._caps, self._buffer = WeightCaps(trainer), BufferLag(trainer)
        own_ports = getattr(trainer, "guard_ports", None)  # MiniRLTrainer has levers of its own
        self._ports: dict[Lever, LeverPort] = {
            "lr_scale": LeverPort(("all",), lambda _: self._lr_scale, self._set_lr_scale),
            **grpo_ports(trainer, self._caps, self._buffer),
            **(own_ports() if own_ports is not None else {}),
            **({} if exclusion is None else tool_ports(trainer, exclusion)),
        }
        self.data = DataOrder(trainer)
        # transformers 5.2 clips in its loop and has no method for the norm
        owner, name = (
            (trainer, "_get_grad_norm")
            if hasattr(trainer, "_get_grad_norm")
            else (trainer.accelerator, "clip_grad_norm_")
        )
        self._inner_norm = getattr(owner, name)
        setattr(owner, name, self._note_norm)
        trainer.add_callback(self)

    # ---- levers

    def levers(self) -> Mapping[Lever, tuple[str, ...]]:
        """Return the levers of this trainer, each with its slices."""
        return {name: port.slices for name, port in self._ports.items()}

    def get(self, lever: Lever, slice_name: str = "all") -> float:
        """Return the value in force."""
        return self._port(lever, slice_name).get(slice_name)

    def set(self, lever: Lever, slice_name: str, value: float) -> None:
        """Put a value in force from the next step on."""
        self._port(lever, slice_name).set(slice_name, value)

    def stop(self) -> None:
        """End training after this step."""
        self._stopping = self.trainer.control.should_training_stop = True

    def _port(self, lever: Lever, slice_name: str) -> LeverPort:
        port = self._ports.get(lever)
        if port is None or slice_name not in port.slices:
            offered = ", ".join(f"{name} ({'/'.join(port.slices)})" for name, port in self._ports.items())
            raise UnsupportedError(f"this trainer has no lever {lever} for {slice_name}; it has {offered}")
        return port

    def _set_lr_scale(self, _slice: str, value: float) -> None:
        self._lr_scale = value

    # ---- the optimizer step

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The optimizer is there now: put the scale and the filter around its step."""
        self._stopping = False
        self.data.begin()
        optimizer = self.trainer.optimizer
        if not hasattr(optimizer, "trimtab_inner_step"):
            optimizer.trimtab_inner_step = optimizer.step
            optimizer.step = _marked(self._update)

    def on_step_end(self, _args: Any, _state: Any, control: Any, **__: Any) -> Any:
        """Repeat the stop: other callbacks run after the one that asked for it."""
        if self._stopping:
            control.should_training_stop = True
        return control

    def _note_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = self._inner_norm(*args, **kwargs)
        self._norm = math.nan if norm is None else float(norm)
        return norm

    def _update(self, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, with the scaled rate; without gradients where the update is left out."""
        trainer, optimizer = self.trainer, self.trainer.optimizer
        ess_frac, step = self._caps.take_ess_frac(), trainer.state.global_step + 1
        if self.before_update is not None and not self.before_update(step, self._norm, ess_frac):
            self.num_skipped += 1
            self._drop_gradients()
        rates = [group["lr"] for group in optimizer.param_groups]
        try:
            if self._lr_scale != 1.0:
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] * self._lr_scale
            return optimizer.trimtab_inner_step(*args, **kwargs)
        finally:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    def _drop_gradients(self) -> None:
        """Take the gradients away: then an optimizer moves nothing. A scaler needs them, as zeros."""
        unchecked = self.trainer.accelerator.scaler is not None and not self.trainer.args.max_grad_norm
        for group in self.trainer.optimizer.param_groups:
            for parameter in group["params"]:
                if unchecked and parameter.grad is not None:
                    parameter.grad.zero_()
                else:
                    parameter.grad = None

    # ---- states

    @property
    def state_bytes(self) -> int:
        """About the size of one saved state, for a ring to check its disk."""
        return state_bytes(self.trainer, self.mode)

    @property
    def cannot_restore(self) -> str:
        """Why this trainer has no rollback; empty where it has one."""
        kind = sharded_by(self.trainer)
        return f"weights are sharded by {kind}: states are neither saved nor restored" if kind else ""

    def save(self, folder: Path) -> None:
        """Write the state between two optimizer steps. Raises OSError where the disk takes no more."""
        trainer = self.trainer
        position = {
            "step": int(trainer.state.global_step),
            "epoch": float(trainer.state.epoch or 0.0),
            "micro_step": int(trainer._step),
            "data": self.data.position,
            "tasks": task_state(trainer),
            "buffer": None if self._at_boundary else _plain(trainer._buffered_inputs),
        }
        save_state(trainer, folder, self.mode, position)

    def restore(self, folder: Path) -> None:
        """Return to a saved state, and go on from there with other data and other random numbers."""
        trainer = self.trainer
        position = load_state(trainer, folder, self.mode)
        seed = _seed(trainer.args.seed, position["step"], trainer.state.global_step, len(self.restores))
        self.follow(
            {
                "step": int(trainer.state.global_step),
                "to_step": position["step"],
                "seed": seed,
                "data_then": position["data"],
                "tasks": position.get("tasks", ""),
            }
        )

    def follow(self, record: dict[str, Any]) -> None:
        """Weights and the rest are those of a state: empty the buffer, go on in the data, sample anew.

        On rank 0 a part of `restore`; on the others all of it that is not taken from rank 0.
        """
        trainer = self.trainer
        record = dict(record)
        restore_tasks(trainer, record.pop("tasks", ""), draws=False)
        trainer._buffered_inputs = None
        left_out = self.data.go_on()
        trainer._step += -trainer._step % self._generate_every
        reseed(record["seed"] + trainer.accelerator.process_index)
        self._synchronise_sampler()
        self.restores.append({**record, "data_now": self.data.position, "batches_left_out": left_out})
        log.warning("trimtab: rolled back: %s", self.restores[-1])

    def resume(self, folder: Path) -> None:
        """Return to a saved state, its step, its place in the data and its random numbers: it repeats."""
        trainer = self.trainer
        if self.mode == "weights":
            raise RunError(
                "a state without the optimizer does not repeat a run: save with mode='full' or 'lora'"
            )
        position = load_state(trainer, folder, self.mode)
        trainer.state.global_step, trainer.state.epoch = position["step"], position["epoch"]
        trainer._step = position["micro_step"]
        device = trainer.accelerator.device
        trainer._buffered_inputs = _on_device(position["buffer"], device)
        self._synchronise_sampler()
        restore_tasks(trainer, position.get("tasks", ""), draws=True)
        self.data.go_to(position["data"])
        load_random_state(folder)

    @property
    def _generate_every(self) -> int:
        return int(self.trainer.args.steps_per_generation * self.trainer.num_iterations)

    @property
    def _at_boundary(self) -> bool:
        """Does TRL generate before the next micro-batch?"""
        return bool(self.trainer._step % self._generate_every == 0)

    def _synchronise_sampler(self) -> None:
        """Have vLLM load the weights before it samples, and a rollout_func with a queue empty it."""
        if hasattr(self.trainer, "_last_loaded_step"):
            self.trainer._last_loaded_step = -1
        if isinstance(self.trainer.rollout_func, RolloutSource):
            self.trainer.rollout_func.resynchronise(self.trainer)


def _marked(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step as schedulers want it: torch warns of one that it has not wrapped."""

    def update(*args: Any, **kwargs: Any) -> Any:
        return step(*args, **kwargs)

    update._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    return update


def _seed(*numbers: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:4], "little") >> 1


def _plain(value: Any) -> Any:
    """Return a buffer of batches on the CPU, as what `torch.load` reads with weights_only."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _on_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _on_device(item, device) for name, item in value.items()}
    return [_on_device(item, device) for item in value] if isinstance(value, list) else value
