"""Four processes that sleep for their phases; the third takes a quarter longer in `backward` from step 30 on.

    python examples/slow_rank.py runs/slow [STEPS]
    trimtab diagnose runs/slow

Each process writes as its own rank into one folder, as the ranks of a job do. No torch is needed.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time

import trimtab

RANKS = 4
SECONDS = {"rollout": 0.03, "reward": 0.005, "forward": 0.01, "backward": 0.03, "optimizer": 0.005}


def train(rank: int, folder: str, steps: int, barrier: multiprocessing.Barrier) -> None:
    """Run one rank; the barrier stands for the all-reduce of the gradients."""
    draw = random.Random(rank)
    with trimtab.open_run(folder, rank=rank) as run:
        for step in range(steps):
            for phase, seconds in SECONDS.items():
                slow = 1.25 if (rank, phase) == (2, "backward") and step >= 30 else 1.0
                with run.phase(phase):
                    time.sleep(seconds * slow * draw.lognormvariate(0, 0.03))
            with run.phase("sync"):
                barrier.wait(timeout=60)
            run.flush(step, {"reward": draw.random()})


def main() -> None:
    """Start the processes and wait for them."""
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs/slow"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 80
    barrier = multiprocessing.Barrier(RANKS)
    processes = [
        multiprocessing.Process(target=train, args=(rank, folder, steps, barrier)) for rank in range(RANKS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in processes))


if __name__ == "__main__":
    main()
