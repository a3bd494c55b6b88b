"""The averages every dashboard has, from the same tokens: so that the calm view and the tail view stand side
by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.capture.clean_values import clean_text
from trimtab.catalog import METRIC_NAMES
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.metric_logs import aliases
from trimtab.metric_logs.frameworks.base import lone_pair_metric

AGGREGATES = ("reward", "kl", "entropy", "grad_norm", "loss", "length")
"""Names of the aggregates, in the order views show them."""

MAX_METRIC = 256
"""Characters of a metric's name: the rest is cut."""

TRAINER_KEYS: Mapping[str, tuple[str, ...]] = aliases()
"""Names under which trainers log an aggregate, ours first; the first that is there counts. One table:
`runs.metric_logs`."""

_NAME_OF_KEY = {key: (name, rank) for name in METRIC_NAMES for rank, key in enumerate(TRAINER_KEYS[name])}
"""Their key -> our name, and how many keys go before it."""


def aggregates(state: SliceState) -> Iterator[Value]:
    """Reward, entropy, KL to the reference (k3) and length over the slice `all`, and alpha, its post-tool
    share."""
    after_tool = state.summaries.get("alpha/values")
    if after_tool is not None:
        yield Value("alpha/frac", after_tool.mean(), after_tool.count)
    reward = state.summaries.get("reward/values")
    if reward is not None:
        yield Value("aggregate/reward", reward.mean(), reward.count)
    values = state.summaries.get("entropy/values")
    if values is not None:
        yield Value("aggregate/entropy", values.mean(), values.count)
    drift = state.summaries.get("drift/sketch")
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
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
            continue
        try:
            numbers[clean_text(name, MAX_METRIC)] = float(value.item() if hasattr(value, "item") else value)
        except OverflowError:  # an integer beyond float's range
            numbers[clean_text(name, MAX_METRIC)] = math.inf if value > 0 else -math.inf
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError):
            continue
    return numbers


def may_be_missing(name: str) -> bool:
    """Is a NaN under this name a value that was not there? TRL logs one for a reward function that judged no
    completion of a step.

    >>> (may_be_missing("rewards/math/mean"), may_be_missing("reward_part:math"), may_be_missing("reward"),
    ...     may_be_missing("rewards/chosen"))
    (True, True, False, False)
    """
    parts = name.split("/")
    of_trl = len(parts) >= 3 and parts[0] == "rewards" and parts[-1] in ("mean", "std")
    return of_trl or name.startswith("reward_part:")


def trainer_aggregates(metrics: Mapping[str, float]) -> dict[str, float]:
    """The aggregates a trainer logged, under our names.

    >>> trainer_aggregates({"actor/grad_norm": 0.5, "actor/ppo_kl": 0.1, "note": 1.0})
    {'policy_kl': 0.1, 'grad_norm': 0.5}
    """
    best: dict[str, tuple[int, str]] = {}
    for key, value in metrics.items():
        if value is not None and (known := _NAME_OF_KEY.get(key)) is not None:
            name, rank = known
            best[name] = min(best.get(name, (rank, key)), (rank, key))
    keys = {name: best[name][1] for name in sorted(best, key=METRIC_NAMES.index)}
    lone = lone_pair_metric(keys)
    return {name: float(metrics[key]) for name, key in keys.items() if name != lone}


def comparable(name: str, numbers: Mapping[str, float]) -> bool:
    """Does this aggregate of a step say something of other steps?

    A gradient norm does not where no group of rewards varied: it comes from penalties alone. An exact 0 does.

    >>> comparable("grad_norm", {"grad_norm": 0.01, "reward_std": 0.0}), comparable("reward", {"reward": 1.0})
    (False, True)
    """
    flat = numbers.get("reward_std") == 0 or numbers.get("zero_std_frac") == 1
    return not (name == "grad_norm" and flat and numbers[name] > 0)
