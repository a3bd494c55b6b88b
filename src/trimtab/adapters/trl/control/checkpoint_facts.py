"""What a transformers or TRL trainer knows of a checkpoint it has just saved, beside the files in it."""

from __future__ import annotations

import os
from collections.abc import Sized
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

_POSITION = (
    "seed", "data_seed", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation",
    "num_iterations", "num_generations", "dataloader_drop_last", "group_by_length", "shuffle_dataset",
    "ignore_data_skip",
)  # fmt: skip
"""Settings that decide which rows a step draws."""


def checkpoint_folder(trainer: Any) -> str:
    """Return the folder that the trainer saved its state of this step in."""
    name = f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    return os.path.join(trainer.args.output_dir, name)


def data_position(trainer: Any) -> dict[str, Any]:
    """Return the position in the data: steps, epoch, and what decides the order and the size of batches."""
    args, data = trainer.args, getattr(trainer, "train_dataset", None)
    known = {name: getattr(args, name) for name in _POSITION if hasattr(args, name)}
    return {
        "global_step": int(trainer.state.global_step),
        "epoch": trainer.state.epoch,
        "train_batch_size": trainer.state.train_batch_size,
        "world_size": int(trainer.accelerator.num_processes),
        "num_rows": len(data) if isinstance(data, Sized) else None,
        "dataset_fingerprint": str(getattr(data, "_fingerprint", "") or ""),
        **known,
    }


def training_settings(trainer: Any) -> dict[str, Any]:
    """Return the trainer's arguments that are numbers, texts or lists of them."""
    values = trainer.args.to_dict()
    plain = (bool, int, float, str, list, tuple, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}


def sampler_position(trainer: Any) -> dict[str, Any]:
    """Return whose weights the sampler has. TRL gives vLLM the trainer's before it generates, also after a
    resume; without vLLM the trainer itself samples."""
    if not getattr(trainer, "use_vllm", False):
        return {"kind": "trainer", "synchronises": True}
    loaded = getattr(trainer, "_last_loaded_step", None)
    known = {"step": int(loaded)} if isinstance(loaded, int) and loaded >= 0 else {}
    return {"kind": "vllm", "synchronises": True, **known}
