"""One rank of a job under torchrun: a gloo collective a step, trouble on the last rank alone, a guard by merged readings.

`torchrun --nproc_per_node N -m tests.distributed.guarded_ranks FOLDER STEPS TROUBLE_FROM`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist

import trimtab
from tests.distributed.dealt_sequences import OPEN, arrays, metrics
from tests.support import leave_group
from trimtab.distributed import MergeOptions
from trimtab.types import Lever


class Learning:
    """The levers of this loop: a factor on its learning rate."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.history: list[float] = []

    def levers(self) -> Mapping[Lever, tuple[str, ...]]:
        return {"lr_scale": ("all",)}

    def get(self, lever: Lever, slice_name: str = "all") -> float:
        return self.scale

    def set(self, lever: Lever, slice_name: str, value: float) -> None:
        self.scale = value

    def stop(self) -> None:
        self.history.append(-1.0)

    def state_bytes(self) -> int:
        return 8

    def save(self, folder: Path) -> None:
        (folder / "scale").write_text(str(self.scale))

    def restore(self, folder: Path) -> None:
        self.scale = float((folder / "scale").read_text())


def main(folder: str, steps: int, trouble_from: int) -> None:
    """Train nothing, for `steps` steps."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    controls = Learning()
    options = {**OPEN, "state_every": 1, "min_tokens": 500, "strict": True}
    with trimtab.open_run(
        folder, guard="recommended", controls=controls, merge=MergeOptions(), **options
    ) as run:
        for step in range(steps):
            mine = arrays(step, rank, ranks)
            if step >= trouble_from and rank == ranks - 1:
                mine["rollout_logprobs"] = mine["rollout_logprobs"] * 2.5
            run.observe(**mine)
            dist.all_reduce(torch.ones(1))  # the trainer's own: the gradients
            run.flush(step, metrics(step))
            controls.history.append(controls.scale)
        dist.barrier()  # as at the end of a training: the last rows of all ranks are written
    Path(folder, f"controls.{rank}.json").write_text(json.dumps(controls.history))
    leave_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
