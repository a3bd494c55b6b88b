"""One of two ranks under one guard: its alarms differ from the other's, its actions do not.

python -m tests.guard.ranks FOLDER RANK
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import trimtab
from tests.guard.troubled_run import Kept, Levers, step_columns
from tests.support import leave_group

STEPS = 36


class Refusing(Levers):
    """Levers of which the second call fails."""

    def set(self, lever: str, slice_name: str, value: float) -> None:
        super().set(lever, slice_name, value)
        if len(self.calls) == 2:
            raise RuntimeError("the scheduler is gone")


def share(text: str) -> str:
    """Give every rank what rank 0 has."""
    texts = [text]
    dist.broadcast_object_list(texts, src=0)
    return str(texts[0])


def main(folder: str, rank: int) -> None:
    """Rank 0 sees stale rollouts, rank 1 sees nothing wrong, and a gradient that is NaN at one step."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=120)
    )
    controls, kept, made = Refusing(), Kept(), []
    windows = {"rank": rank, "min_tokens": 2_400, "min_trajectories": 10}
    with trimtab.open_run(
        f"{folder}/run", guard="recommended", controls=controls, states=kept, share=share, **windows
    ) as run:
        for step in range(STEPS):
            made.append(run.before_update(step, float("nan") if rank == 0 and step == 7 else 1.0))
            run.observe(**step_columns(step, "update" if rank == 0 else "none"))
            run.flush(step if (rank, step) != (1, 12) else -1, {"reward": 0.5})
    state = {
        "values": [[*key, value] for key, value in controls.values.items()],
        "kept": kept.steps,
        "made": made,
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(state | {"alarms": len(run.alarms)}))
    leave_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
