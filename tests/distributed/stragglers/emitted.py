"""Keys of the readings of the machine, from rows of steps that have all of it."""

from __future__ import annotations

import numpy as np
from benchmarks.straggler_jitter import step_times

from trimtab.distributed.stragglers import MachineJudge


def machine_keys(rng: np.random.Generator) -> set[str]:
    """Return all keys that `MachineJudge` emits over forty steps of two ranks."""
    judge, keys = MachineJudge(), set()
    episodes = {"num": 4, "median_s": 1.0, "longest_s": 3.0, "next_s": 2.0}
    for step, times in enumerate(step_times(rng, 40, 2)):
        memory = {"host": [10**9 + step, 2 * 10**9, 4 * 10**9, 2 * 10**9]}
        rows = {
            rank: {"phases_s": seconds, "memory": memory, "episodes": episodes}
            for rank, seconds in times.items()
        }
        keys |= {reading.key for reading in judge.update(step, rows)}
    return keys
