"""Sequences of a run, dealt out over any number of ranks: the same ones whatever the number.

As a command it is one rank: `python -m tests.distributed.dealt_sequences FOLDER RANK RANKS STEPS [MERGE]`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import trimtab

TOOLS = ("search", "stock", "python")
SEQUENCES, GROUP, TEXT, TOOL, POST = 32, 4, 30, 5, 30
EVERY = 4  # steps a stored state covers
OPEN = {"min_tokens": 3_000, "min_trajectories": 30, "state_every": EVERY, "solved_at": 1.0}


def arrays(step: int, rank: int = 0, ranks: int = 1) -> dict[str, Any]:
    """The arguments of `observe` for the sequences of one step that are this rank's."""
    rng = np.random.default_rng(1_000 + step)
    shape = (SEQUENCES, TEXT + TOOL + POST)
    mask = np.ones(shape, bool)
    mask[:, TEXT : TEXT + TOOL] = False
    scale = np.where(np.arange(shape[1]) < TEXT, 0.02, 0.05 * 1.05**step)
    ref = -rng.exponential(1.0, shape) - 0.5
    logprobs = np.minimum(ref + rng.normal(size=shape) * scale, 0.0)
    columns = {
        "loss_mask": mask,
        "logprobs": logprobs,
        "ref_logprobs": ref,
        "rollout_logprobs": np.minimum(logprobs + rng.normal(size=shape) * 0.02, 0.0),
        "advantages": rng.normal(size=SEQUENCES),
        "entropy": rng.uniform(0.1, 0.5, shape),
        "reward": rng.integers(0, 2, SEQUENCES).astype(float),
        "episode_id": np.arange(SEQUENCES) + SEQUENCES * step,
        "group": np.arange(SEQUENCES) // GROUP,
    }
    tools = [[TOOLS[int(i)]] for i in rng.integers(0, len(TOOLS), SEQUENCES)]
    mine = np.random.default_rng(3_000 + step).permutation(SEQUENCES)[rank::ranks]  # some groups are split
    return {name: values[mine] for name, values in columns.items()} | {
        "tools": [tools[i] for i in mine],
        "tool_names": TOOLS,
        "reference": "frozen copy",
    }


def metrics(step: int) -> dict[str, float]:
    """The trainer's numbers of a step, the same on all ranks."""
    rng = np.random.default_rng(2_000 + step)
    return {"reward": 0.5 + 0.01 * rng.normal(), "grad_norm": 1.0 + 0.05 * rng.normal()}


def record(folder: str, rank: int, ranks: int, steps: int, **open_with: Any) -> trimtab.Run:
    """Write a run of this rank; returns it closed."""
    with trimtab.open_run(folder, rank=rank, strict=True, **OPEN, **open_with) as run:
        for step in range(steps):
            run.observe(**arrays(step, rank, ranks))
            run.tool_call(trimtab.ToolCall("search", {"q": "x"}, 12, "" if step % 5 else "timeout", 0.01))
            run.flush(step, metrics(step))
    return run


if __name__ == "__main__":
    record(sys.argv[1], *map(int, sys.argv[2:5]))
