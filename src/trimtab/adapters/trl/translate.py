"""TRL's names to ours, at the boundary and nowhere else. B sequences, T completion tokens."""

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
    "rollout_logprobs": "the trainer's own generation returns no sampler log-probabilities (use vLLM or a rollout_func)",
    "entropy": "TRL computed none",
    "ref_logprobs": "beta is 0 and no reference could be made",
    "policy_version": "TRL does not say which weights sampled a token",
}
_CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo")


def clip_range_of(trainer: Any) -> tuple[float, float] | None:
    """The trainer's (epsilon, epsilon_high) where its loss clips each token's ratio to 1 - epsilon .. 1 + epsilon_high.

    None for losses that clip otherwise (cispo, sapo, vespo), for ratios of whole sequences (GSPO), and for an epsilon
    that clips nothing or everything.
    """
    low, high = (getattr(trainer, name, None) for name in ("epsilon_low", "epsilon_high"))
    level = getattr(trainer, "importance_sampling_level", "token")
    if getattr(trainer, "own_clip", False):  # MiniRLTrainer, whose objective says what is clipped
        return trainer.staleness_clip
    if low is None or high is None or getattr(trainer, "loss_type", "") not in _CLIPPED or level != "token":
        return None
    return (float(low), float(high)) if 0.0 < low < 1.0 and 0.0 < high < math.inf else None


def arrays_of(
    batch: Mapping[str, Any],
    generation: Any,
    rows: np.ndarray,
    scored: tuple[Any, Any] | None,
    reference: str,
    tool_table: Sequence[str],
    clip_range: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Arguments of `trimtab.token_batch` for one TRL micro-batch, copied off the device in one transfer.

    Where TRL has no old log-probabilities it takes the current ones (one iteration, aligned generation), and so do we:
    pi_old is then pi_theta itself, staleness is identically zero, and mismatch is measured against it.
    """
    exists = (batch["completion_mask"] > 0).cpu().numpy()
    names = [name for name, key in _FLOAT_COLUMNS.items() if batch.get(key) is not None]
    stacked = torch.stack([batch[_FLOAT_COLUMNS[name]].detach().float() for name in names]).cpu().numpy()
    found: dict[str, Any] = {name: stacked[i] for i, name in enumerate(names)}
    same: list[tuple[str, str]] = []
    if "old_logprobs" not in found:
        found["old_logprobs"] = found["logprobs"]
        same.append(("old_logprobs", "logprobs"))
    tool_mask = batch.get("tool_mask")
    external = exists & (tool_mask == 0).cpu().numpy() if tool_mask is not None else np.zeros_like(exists)
    advantages = batch["advantages"].detach().float().cpu().numpy()
    if advantages.ndim == 2 and advantages.shape[1] == 1:
        advantages = advantages[:, 0]
    if scored is not None:
        found["ref_logprobs"], found["ref_scored"] = scored
    result = {
        "loss_mask": exists & ~external,
        "exists": exists,
        "tool_tokens": external,
        "token_ids": batch["completion_ids"].cpu().numpy(),
        "advantages": advantages,
        "reference": reference,
        "clip_range": clip_range,
        "same": same,
        "absent": {name: why for name, why in _ABSENT.items() if name not in found},
        **found,
    }
    if generation is not None:
        chosen = rows.tolist()
        result |= {
            "episode_id": generation.episode_id[rows],
            "group": generation.group[rows],
            "reward": generation.reward[rows],
            "reward_parts": {name: values[rows] for name, values in generation.parts.items()},
            "stop_reason": [generation.stop_reason[i] for i in chosen],
            "tools": [generation.tools[i] for i in chosen],
            "tool_names": tool_table,
        }
    return result
