"""MiniRL and the watch under FSDP2 on two CPU ranks; with torchrun, `-m tests.training.sharded MODEL MOE WORK`.

accelerate turns FSDP on for accelerators alone. `shard` sets what it would set, before the model is prepared; all that
follows (fully_shard, DTensors, gathers over gloo) is real.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from tests.support import leave_group
from tests.training.tiny import fixed_rollout, ours
from trimtab.adapters.trl import watch


def shard(trainer: Any, layer: str) -> None:
    """Make a trainer prepare its model with FSDP2; the root keeps its weights gathered after a forward."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[layer],
        reshard_after_forward=True,
        cpu_ram_efficient_loading=False,
        state_dict_type="FULL_STATE_DICT",
    )
    for state in (AcceleratorState._shared_state, PartialState._shared_state):
        state["distributed_type"] = DistributedType.FSDP
    AcceleratorState._shared_state["fsdp_plugin"] = plugin
    trainer.is_fsdp_enabled = True


def plain() -> None:
    """Forget the sharding: the next trainer is data parallel."""
    AcceleratorState._reset_state(reset_partial_state=True)


def train(model: str, work: Path, *, sharded: bool, watched: bool, moe: bool) -> dict[str, Any]:
    """Three steps on this rank's share of a global batch; rank 0 alone has tool results."""
    plain()
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    inner = fixed_rollout(tools=True, path=None if moe else model)

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        out = inner(prompts * world, trainer)
        mine = {key: value[rank * len(prompts) : (rank + 1) * len(prompts)] for key, value in out.items()}
        if rank:
            mine["env_mask"] = [[1] * len(row) for row in mine["env_mask"]]
        return mine

    def reward(completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        return [float(sum(ids) % 7) for ids in completion_ids]

    own: dict[str, Any] = {"routing_replay": "R2"} if moe else {"ewma_centre_of_mass": 2.0}
    name = f"{'moe' if moe else 'dense'}.{'fsdp2' if sharded else 'ddp'}{'.watched' if watched else ''}"
    trainer = ours(
        model, work / name, rollout=rollout, reward_funcs=reward, objective="minirl", max_steps=3,
        per_device_train_batch_size=4, num_iterations=2, ddp_backend="gloo", learning_rate=0.05, **own,
    )  # fmt: skip
    if sharded:
        shard(trainer, "Qwen3MoeDecoderLayer" if moe else "LlamaDecoderLayer")
    if watched:
        options = {"reference_rows": 0.5, "update_rows": 0.5, "probe_every": 1, "state_every": 1}
        watch(trainer, work / name / "run", strict=True, **options)
    trainer.train()
    kinds = {type(one).__name__ for one in trainer.model.parameters()}
    assert kinds == ({"DTensor"} if sharded else {"Parameter"}), kinds
    average = {}
    if trainer.average:
        state, parts = trainer.average.state_dict(), trainer.average.average
        average, own = state["average"], {key: one.clone() for key, one in parts.items()}
        trainer.average.reset()
        trainer.average.load_state_dict(state)  # whole tensors find their way back to this rank's parts
        assert all(torch.equal(own[key], one) for key, one in trainer.average.average.items())
    whole = {
        key: one.full_tensor() if sharded else one.detach() for key, one in trainer.model.named_parameters()
    }
    logs = [
        {
            key: value
            for key, value in row.items()
            if key.startswith(("trimtab", "entropy", "loss", "routing"))
        }
        for row in trainer.state.log_history[:3]
    ]
    return {"average": average, "weights": whole, "logs": logs}


if __name__ == "__main__":
    dense, experts, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    results = {
        "ddp": train(dense, folder, sharded=False, watched=True, moe=False),
        "fsdp2": train(dense, folder, sharded=True, watched=False, moe=False),
        "watched": train(dense, folder, sharded=True, watched=True, moe=False),
        "moe.ddp": train(experts, folder, sharded=False, watched=False, moe=True),
        "moe.fsdp2": train(experts, folder, sharded=True, watched=False, moe=True),
    }
    if int(os.environ["RANK"]) == 0:
        torch.save(
            {key: {k: v for k, v in one.items() if k != "logs"} for key, one in results.items()},
            folder / "weights.pt",
        )
        (folder / "logs.json").write_text(json.dumps({key: one["logs"] for key, one in results.items()}))
    leave_group()
