"""Sizes and times of merging: one rank's flush, and the states of 1,024 ranks on one core.

A rank's batch has 20 slices: 12 tools, two sources, and what every run has. `merge_1024_s` is the CPU time from packed bytes (64
different ranks, repeated) to the merged states.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

import trimtab
from trimtab.distributed import MergeOptions, Merger
from trimtab.distributed.shard import Block, Shard
from trimtab.measure.accumulate import observe
from trimtab.measure.state.blocks import compress_states
from trimtab.measure.state.bulk_states import merge_packed
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.steps.measure_step import measure_step
from trimtab.monitor.batch_measurement import Measuring
from trimtab.monitor.ranks.merging import RunMerge
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


def overhead(num_steps: int) -> tuple[float, float]:
    """What merging adds to the CPU time of a watch of one rank, as a fraction: alone, and as the leading rank of four.

    Added is what a watch without merging does not call (handing over, polling, folding, silent ranks), and the windows of the merged
    states less those that it fills itself. A difference of two whole watches would be lost in the noise of a busy machine.
    """
    logging.disable(logging.WARNING)
    rng = np.random.default_rng(2)
    batches = [batch(rng, 32) for _ in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        watch, own_windows = _watched(
            trimtab.open_run(f"{folder}/alone", rank=0, strict=True), batches, num_steps
        )
        one = trimtab.open_run(f"{folder}/one", rank=0, merge=MergeOptions(ranks=1), strict=True)
        _, added = _watched(one, batches, num_steps)
        for rank in (1, 2, 3):
            _watched(trimtab.open_run(f"{folder}/four", rank=rank), batches, num_steps)
        four = trimtab.open_run(f"{folder}/four", rank=0, merge=MergeOptions(ranks=4), strict=True)
        _, added_of_four = _watched(four, batches, num_steps)
    logging.disable(logging.NOTSET)
    return (added - own_windows) / watch, (added_of_four - own_windows) / watch


_ADDED = (
    (RunMerge, "parts"), (RunMerge, "take"), (RunMerge, "poll"), (RunMerge, "silences"), (RunMerge, "status"), (Merger, "fold"),
    (Measuring, "_keep_windows"),
)  # fmt: skip


def _watched(run: trimtab.Run, batches: list[TokenBatch], num_steps: int) -> tuple[float, float]:
    """CPU seconds of the thread in `observe` and `flush`, and those of them in merging and in filling windows."""
    added, total = [0.0], 0.0

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **options: Any) -> Any:
            start = time.thread_time()
            try:
                return call(*arguments, **options)
            finally:
                added[0] += time.thread_time() - start

        return inner

    with contextlib.ExitStack() as stack:
        stack.enter_context(run)
        for owner, name in _ADDED:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name))))
        merged = None if run._merge is None or run._merge.judging is None else run._merge.judging
        for windows in (run.windows, *([] if merged is None else [merged.windows])):
            stack.enter_context(patch.object(windows, "add", timed(windows.add)))
        for step in range(num_steps):
            start = time.thread_time()
            run.observe(batches[step % len(batches)])
            run.flush(step, {"reward": 0.5})
            total += time.thread_time() - start
    return total, added[0]


def figures(quick: bool = False) -> dict[str, float]:
    """`flush_bytes`, `merge_1024_s`, and what a rank's packed states weigh."""
    packed = packed_ranks(8 if quick else DIFFERENT)
    alone, of_four = overhead(10 if quick else 50)
    return {
        "flush_bytes": flush_bytes(),
        "states_bytes": round(float(np.mean([len(one) for one in packed]))),
        "overhead_frac": round(alone, 4),
        "leader_of_4_overhead_frac": round(of_four, 4),
        "merge_1024_s": round(merge_seconds(packed, RANKS, 1 if quick else 5), 3),
    }
