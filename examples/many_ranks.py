"""A job of many ranks under torchrun, watched as one: synthetic tokens, gloo, no GPU.

torchrun --standalone --nproc_per_node 4 examples/many_ranks.py runs/exp1
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch.distributed as dist

import trimtab

STEPS, SEQUENCES, TOKENS = 30, 16, 64


def main(folder: str) -> None:
    """Train nothing; observe what a trainer would."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = np.random.default_rng(rank)
    with trimtab.open_run(folder, merge="folder") as run:
        for step in range(STEPS):
            reference = -rng.exponential(1.0, (SEQUENCES, TOKENS)) - 0.5
            logprobs = np.minimum(reference + rng.normal(size=reference.shape) * 0.02, 0.0)
            numbers = np.arange(SEQUENCES) + SEQUENCES * (rank + dist.get_world_size() * step)
            reward = rng.integers(0, 2, SEQUENCES).astype(float)
            run.observe(
                loss_mask=np.ones(reference.shape, bool),
                logprobs=logprobs,
                ref_logprobs=reference,
                rollout_logprobs=logprobs,
                reward=reward,
                episode_id=numbers,
                group=numbers // 4,
            )
            mean = torch.tensor([reward.mean()])
            dist.all_reduce(mean)  # the trainer's own collective
            run.flush(step, {"reward": float(mean) / dist.get_world_size()})
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
