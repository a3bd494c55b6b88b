"""Batches with every optional column, for the measures of the policy behind the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab import token_batch
from trimtab.catalog import READINGS
from trimtab.measure.accumulate import observe
from trimtab.measure.all_measures import readings_of
from trimtab.measure.policy.gradients import gradient_values
from trimtab.measure.policy.input_dependence import Distinguish
from trimtab.types import Reading, TokenBatch, Window

W = Window(0, 0)
TOOLS = ("search", "sql")


def routes(
    rng: np.random.Generator, tokens: int, layers: int = 3, experts: int = 8, k: int = 2
) -> np.ndarray:
    """(tokens, layers, k) distinct experts."""
    return rng.permuted(np.tile(np.arange(experts), (tokens, layers, 1)), axis=2)[..., :k]


def rich_columns(rng: np.random.Generator, sequences: int = 24) -> dict[str, Any]:
    """Arguments of `token_batch`: packed sequences of one to four turns of uneven length, with every column measures read."""
    lengths, mask, tools = [], [], []
    for i in range(sequences):
        row = [True] * int(rng.integers(3, 20))
        for _ in range(i % 5):
            row += [False] * int(rng.integers(1, 4)) + [True] * int(rng.integers(0, 14))
        lengths.append(len(row))
        mask += row
        spans = sum(1 for a, b in zip([True, *row], row, strict=False) if a and not b)
        tools.append([TOOLS[int(j)] for j in rng.integers(0, 2, spans)])
    n = len(mask)
    mu = -rng.exponential(3.0, n)
    old = np.minimum(mu + 0.2 * rng.standard_t(3, n), 0.0)
    mine = routes(rng, n)
    theirs = np.where(rng.random((n, 1, 1)) < 0.6, mine, routes(rng, n))
    return {
        "loss_mask": np.array(mask), "lengths": np.array(lengths), "tools": tools, "tool_names": TOOLS,
        "tool_tokens": ~np.array(mask), "rollout_logprobs": mu, "old_logprobs": old,
        "logprobs": np.minimum(old + 0.05 * rng.normal(size=n), 0.0), "ref_logprobs": np.minimum(mu - 0.1, 0.0),
        "entropy": rng.uniform(0.0, 3.0, n), "token_ids": rng.integers(0, 50, n), "advantages": rng.normal(size=n),
        "group": np.arange(sequences) // 4, "episode_id": np.arange(sequences) + 1000,
        "routed_experts": mine, "rollout_routed_experts": theirs,
    }  # fmt: skip


def rich_batch(seed: int = 0, sequences: int = 24, **changes: Any) -> TokenBatch:
    """A validated batch of those."""
    return token_batch(**{**rich_columns(np.random.default_rng(seed), sequences), **changes})


def cut(columns: dict[str, Any], rows: slice) -> dict[str, Any]:
    """The columns of some sequences."""
    ends = np.cumsum(columns["lengths"])
    first, last = rows.start, rows.stop
    tokens = slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
    by_sequence = {"lengths", "tools", "group", "episode_id"}
    return {
        name: value if name == "tool_names" else value[rows if name in by_sequence else tokens]
        for name, value in columns.items()
    }


def values(batch: TokenBatch, name: str = "all") -> dict[str, Reading]:
    """Readings of one slice of a batch by key."""
    return {r.key: r for r in readings_of(name, W, observe(batch)[name])}


def emitted_keys() -> set[str]:
    """Every key that the measures of `catalog/policy_readings.py` give for such a batch."""
    states = observe(rich_batch())
    keys = {r.key for name, state in states.items() for r in readings_of(name, W, state)}
    keys |= {value.key for value, _ in Distinguish().update(np.eye(3), np.arange(3))}
    parts = {"text": np.eye(3), "post_tool": np.ones((3, 3))}
    keys |= {value.key for _, value, _ in gradient_values(parts, {"text": 1, "post_tool": 1})}
    assert keys <= set(READINGS)
    return keys
