"""One training on this process's share of a global batch, for test_two_ranks; with torchrun, `-m tests.training.ranks MODEL WORK`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.support import leave_group
from tests.training.tiny import fixed_rollout, ours


def train(model: str, work: Path) -> None:
    """Writes weights, average and logs of rank 0, and the average of each rank."""
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    inner = fixed_rollout(tools=True, path=model)

    def rollout(
        prompts: list[str], trainer: Any
    ) -> dict[str, Any]:  # completions depend on the place in the global batch
        out = inner(prompts * world, trainer)
        return {key: value[rank * len(prompts) : (rank + 1) * len(prompts)] for key, value in out.items()}

    def reward(completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        return [float(sum(ids) % 7) for ids in completion_ids]

    for objective in ("minirl", "dapo", "reinforce"):
        own: dict[str, Any] = {"entropy_keep": 0.3}  # first tokens share a prompt and tie near 0.6
        if objective == "reinforce":
            own = {"off_policy_baseline": True}
        if objective == "minirl":
            own = {"ewma_centre_of_mass": 2.0, "lr_by_ess": True, "save_strategy": "steps", "save_steps": 3}
        if world > 1:
            own["ddp_backend"] = "gloo"
        trainer = ours(
            model, work / str(world), rollout=rollout, reward_funcs=reward, objective=objective, num_generations=8, max_steps=3,
            per_device_train_batch_size=4 // world, gradient_accumulation_steps=2, num_iterations=2, **own,
        )  # fmt: skip
        trainer.train()
        assert trainer.accelerator.num_processes == world
        state = trainer.average.state_dict() if trainer.average else {"average": {}}
        torch.save(state, work / f"{objective}.rank{rank}.{world}.pt")
        if rank == 0:
            names = ("trimtab", "entropy", "vcpo", "clip", "selected")
            rows = trainer.state.log_history[:3]
            logged = [{k: v for k, v in row.items() if k.startswith(names)} for row in rows]
            torch.save((dict(trainer.model.state_dict()), state["average"]), work / f"{objective}.{world}.pt")
            (work / f"{objective}.{world}.json").write_text(json.dumps(logged))


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]))
    leave_group()  # gloo's threads may abort what exits with the group alive
