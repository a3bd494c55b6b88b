"""TRL's names to trimtab's, at the boundary and nowhere else. B sequences, T completion tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

_FLOAT_COLUMNS = {
    "logprobs": "per_token_logps",
    "entropy": "entropies",
    "old_logprobs": "old_per_token_logps",
    "rollout_logprobs": "sampling_per_token_logps",
    "prox_logprobs": "prox_per_token_logps",
    "ref_logprobs": "ref_per_token_logps",
}
_ABSENT = {
    "rollout_logprobs": "the trainer's own generation returns no sampler log-probabilities "
    "(use vLLM or a rollout_func)",
    "entropy": "TRL computed none",
    "ref_logprobs": "beta is 0 and no reference could be made",
    "policy_version": "TRL does not say which weights sampled a token; a rollout_func may return it",
}
_CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo")


def clip_range_of(trainer: Any) -> tuple[float, float] | None:
    """Return (epsilon, epsilon_high) of a loss that clips each token's ratio to that range around 1.

    None for losses that clip otherwise (cispo, sapo, vespo), for ratios of whole sequences (GSPO), and for an
    epsilon that clips nothing or everything.
    """
    low, high = (getattr(trainer, name, None) for name in ("epsilon_low", "epsilon_high"))
    level = getattr(trainer, "importance_sampling_level", "token")
    if getattr(trainer, "own_clip", False):  # MiniRLTrainer, whose objective says what is clipped
        return trainer.staleness_clip
    if low is None or high is None or getattr(trainer, "loss_type", "") not in _CLIPPED or level != "token":
        return None
    return (float(low), float(high)) if 0.0 < low < 1.0 and 0.0 < high < math.inf else None


def batch_arrays(
    batch: Mapping[str, Any],
    scored: tuple[Any, Any] | None,
    reference: str,
    clip_range: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return the arguments of `trimtab.token_batch` for one TRL micro-batch, in one copy off the device.

    Where TRL has no old log-probabilities it takes the current ones (one iteration, aligned generation). So
    does trimtab: pi_old is then pi_theta itself, staleness is zero, and mismatch is measured against it.
    """
    exists = (batch["completion_mask"] > 0).cpu().numpy()
    names = [name for name, key in _FLOAT_COLUMNS.items() if batch.get(key) is not None]
    stacked = torch.stack([batch[_FLOAT_COLUMNS[name]].detach().float() for name in names]).cpu().numpy()
    columns: dict[str, Any] = {name: stacked[i] for i, name in enumerate(names)}
    same: list[tuple[str, str]] = []
    if "old_logprobs" not in columns:
        columns["old_logprobs"] = columns["logprobs"]
        same.append(("old_logprobs", "logprobs"))
    tool_mask = batch.get("tool_mask")
    external = exists & (tool_mask == 0).cpu().numpy() if tool_mask is not None else np.zeros_like(exists)
    advantages = batch["advantages"].detach().float().cpu().numpy()
    if advantages.ndim == 2 and advantages.shape[1] == 1:
        advantages = advantages[:, 0]
    if scored is not None:
        columns["ref_logprobs"], columns["ref_scored"] = scored
    return {
        "loss_mask": exists & ~external,
        "exists": exists,
        "tool_tokens": external,
        "token_ids": batch["completion_ids"].cpu().numpy(),
        "advantages": advantages,
        "reference": reference,
        "clip_range": clip_range,
        "same": same,
        "absent": {name: why for name, why in _ABSENT.items() if name not in columns},
        **columns,
    }


def row_arrays(generation: Any, rows: np.ndarray, tool_table: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `trimtab.token_batch` known since the generation; `rows` (B,) index into it."""
    if generation is None:
        return {}
    chosen = rows.tolist()
    return {
        "episode_id": generation.episode_id[rows],
        "group": generation.group[rows],
        "reward": generation.reward[rows],
        "reward_parts": {name: values[rows] for name, values in generation.parts.items()},
        "stop_reason": [generation.stop_reason[i] for i in chosen],
        "tools": [generation.tools[i] for i in chosen],
        "tool_names": tool_table,
    }


def version_arrays(versions: np.ndarray, columns: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Return the arguments of `trimtab.token_batch` that tell the age of rollouts, from one version a row.

    Versions count updates, so the weights that step `step` trained had the version `step - 1`.
    """
    shape = columns["loss_mask"].shape
    reasons = {name: why for name, why in columns["absent"].items() if name != "policy_version"}
    return {
        "policy_version": np.broadcast_to(versions[:, None], shape),
        "current_version": step - 1,
        "absent": reasons,
    }
