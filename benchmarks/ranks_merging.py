"""Sizes and times of merging: one rank's flush, and the states of 1,024 ranks on one core.

A rank's batch has 20 slices: 12 tools, two sources, and what every run has. `merge_1024_s` is the CPU time from packed bytes (64
different ranks, repeated) to the merged states.
"""

from __future__ import annotations

import time

import numpy as np

import trimtab
from trimtab.distributed.shard import Block, Shard
from trimtab.measure.accumulate import observe
from trimtab.measure.state.blocks import compress_states
from trimtab.measure.state.bulk_states import merge_packed
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.steps.measure_step import measure_step
from trimtab.types import TokenBatch

NUM_SLICES, NUM_TOOLS, RANKS, DIFFERENT = 20, 12, 1_024, 64
ROLLOUTS, TOKENS = 12, 300  # sequences of a rank, tokens before and after its tool call


def batch(rng: np.random.Generator, sequences: int = ROLLOUTS) -> TokenBatch:
    """One rank's batch of one step, with every column but `old_logprobs`."""
    shape = (sequences, 2 * TOKENS + 20)
    mask = np.ones(shape, bool)
    mask[:, TOKENS : TOKENS + 20] = False
    ref = -rng.exponential(1.0, shape) - 0.5
    logprobs = np.minimum(ref + rng.normal(size=shape) * 0.05, 0.0)
    return trimtab.token_batch(
        mask,
        logprobs=logprobs,
        ref_logprobs=ref,
        rollout_logprobs=np.minimum(logprobs + rng.normal(size=shape) * 0.02, 0.0),
        advantages=rng.normal(size=sequences),
        entropy=rng.uniform(0.1, 0.5, shape),
        reward=rng.integers(0, 2, sequences).astype(float),
        episode_id=rng.integers(0, 1 << 40, sequences),
        group=rng.integers(0, 8_192, sequences),
        tools=[[f"tool{i % NUM_TOOLS}"] for i in range(sequences)],
        tool_names=tuple(f"tool{i}" for i in range(NUM_TOOLS)),
        source=["math" if i % 2 else "search" for i in range(sequences)],
        source_names=("math", "search"),
    )


def flush_bytes(sequences: int = 64) -> int:
    """Bytes of the shard that a rank of 64 sequences hands over for one step."""
    one = batch(np.random.default_rng(0), sequences)
    states = observe(one)
    if len(states) != NUM_SLICES:
        raise ValueError(f"the batch has {len(states)} slices: {', '.join(states)}")
    series = measure_step(0, [one], updates={}, solved_at=1.0, gradient_norm=1.0, reward_bar=0.5)
    counts = {
        name: {"n_tokens": s.n_tokens, "n_trajectories": s.n_trajectories} for name, s in states.items()
    }
    row = {"step": 0, "slices": counts, "metrics": {"reward": 0.5}, "columns": [], "nonfinite": {}}
    return len(Shard(0, 0, 0, 0, row, series, (), (Block(0, 0, states),)).to_bytes())


def packed_ranks(num: int = DIFFERENT) -> list[bytes]:
    """The packed states of one step of so many different ranks."""
    rng = np.random.default_rng(1)
    return [compress_states(observe(batch(rng))) for _ in range(num)]


def merge_seconds(packed: list[bytes], ranks: int, repeats: int) -> float:
    """CPU seconds to merge the states of `ranks` ranks, the least of some repeats."""
    texts = (packed * (ranks // len(packed) + 1))[:ranks]
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        states, damaged = merge_packed(texts)
        seconds.append(time.process_time() - start)
        if damaged or states["all"].n_tokens != _tokens(states):
            raise ValueError("the merge lost something")
    return min(seconds)


def _tokens(states: dict[str, SliceState]) -> int:
    return states["text"].n_tokens + states["post_tool"].n_tokens


def figures(quick: bool = False) -> dict[str, float]:
    """`flush_bytes`, `merge_1024_s`, and what a rank's packed states weigh."""
    packed = packed_ranks(8 if quick else DIFFERENT)
    return {
        "flush_bytes": flush_bytes(),
        "states_bytes": round(float(np.mean([len(one) for one in packed]))),
        "merge_1024_s": round(merge_seconds(packed, RANKS, 1 if quick else 5), 3),
    }
