"""The averages every dashboard has, from the same tokens: so that the calm view and the tail view stand side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.catalog import METRIC_NAMES
from trimtab.measure.preference import PREFERENCE_KEYS
from trimtab.measure.state import SliceState
from trimtab.measure.value import Value

__all__ = ["AGGREGATES", "TRAINER_KEYS", "aggregates", "as_numbers", "trainer_aggregates"]

AGGREGATES = ("reward", "kl", "entropy", "grad_norm", "loss", "length")
"""Names of the aggregates, in the order views show them."""

TRAINER_KEYS = {
    "reward": ("reward", "rewards/mean", "critic/rewards/mean"),
    "kl": ("kl", "actor/ppo_kl", "actor/kl_loss", "objective/kl"),
    "entropy": ("entropy", "actor/entropy", "policy/entropy"),
    "grad_norm": ("grad_norm", "actor/grad_norm"),
    "loss": ("loss", "actor/pg_loss", "train_loss"),
    "length": ("completions/mean_length", "response_length/mean"),
    **PREFERENCE_KEYS,
}
"""Names under which trainers log an aggregate; the first that is there counts. Every name of ours is also taken as it is."""


def aggregates(state: SliceState) -> Iterator[Value]:
    """Reward, entropy, KL to the reference (k3) and length over the slice `all`, and alpha, its post-tool share."""
    after_tool = state.parts.get("alpha/values")
    if after_tool is not None:
        yield Value("alpha/frac", after_tool.mean(), after_tool.count)
    reward = state.parts.get("reward/values")
    if reward is not None:
        yield Value("aggregate/reward", reward.mean(), reward.count)
    values = state.parts.get("entropy/values")
    if values is not None:
        yield Value("aggregate/entropy", values.mean(), values.count)
    drift = state.parts.get("drift/sketch")
    if drift is not None and drift.count:
        log_mean = drift.log_mean_exp(-1)
        yield Value(
            "aggregate/kl",
            (math.exp(log_mean) if log_mean < 709 else math.inf) - 1.0 + drift.mean(),
            drift.count,
        )
    if state.n_sequences:
        yield Value("aggregate/length", state.n_tokens / state.n_sequences, state.n_sequences)


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are one number each, as floats: NumPy scalars, 0-d arrays and one-element tensors too.

    >>> as_numbers({"reward": np.float32(0.5), "note": "text", "done": True})
    {'reward': 0.5}
    """
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
            continue
        try:
            found[str(name)] = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError):
            continue
    return found


def trainer_aggregates(metrics: Mapping[str, float]) -> dict[str, float]:
    """The aggregates a trainer logged, under our names.

    >>> trainer_aggregates({"actor/grad_norm": 0.5, "lr": 1.0})
    {'grad_norm': 0.5}
    """
    found: dict[str, float] = {}
    for name in METRIC_NAMES:
        for key in (*TRAINER_KEYS.get(name, ()), name):
            value = metrics.get(key)
            if value is not None:
                found[name] = float(value)
                break
    return found
