"""One rank of the jobs that reproduce/rank_faults.py stops and kills: sleeps, measures a small batch, flushes.

`python -m reproduce.rank_bank.rank_loop SPEC RANK`: SPEC is a JSON file. The end of each step is written down with its time, so that
watched and unwatched jobs can be compared.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

SEQUENCES, TOKENS = 8, 64
GROUP_LIMIT = timedelta(minutes=5)


def batch(rank: int, ranks: int, step: int) -> dict[str, Any]:
    """The arguments of `observe` of one rank and step."""
    rng = np.random.default_rng([rank, step])
    reference = -rng.exponential(1.0, (SEQUENCES, TOKENS)) - 0.5
    numbers = np.arange(SEQUENCES) + SEQUENCES * (rank + ranks * step)
    logprobs = np.minimum(reference + rng.normal(size=reference.shape) * 0.02, 0.0)
    return {
        "loss_mask": np.ones(reference.shape, bool), "logprobs": logprobs, "ref_logprobs": reference,
        "rollout_logprobs": np.minimum(logprobs + rng.normal(size=reference.shape) * 0.01, 0.0),
        "reward": rng.integers(0, 2, SEQUENCES).astype(float), "episode_id": numbers, "group": numbers // 4,
    }  # fmt: skip


def first_step(spec: dict[str, Any], rank: int) -> int:
    """The step to begin with: after a kill, three before the last one, as from a checkpoint."""
    path = Path(spec["folder"], f"times.{rank}.jsonl")
    if not path.exists():
        return 0
    lines = path.read_text().splitlines()
    return max(0, json.loads(lines[-1])[0] - 2) if lines else 0


def main(spec: dict[str, Any], rank: int) -> None:
    """Step until the file `stop` says which step is the last one."""
    ranks, folder = spec["ranks"], Path(spec["folder"])
    reduce = _collective(spec, rank) if spec["collective"] else lambda: None
    run = None
    if spec["watched"]:
        import trimtab
        from trimtab.distributed import MergeOptions

        run = trimtab.open_run(
            folder / "run", rank=rank, merge=MergeOptions(ranks=ranks), strict=True, min_tokens=1_000
        )
    stop, step = folder / "stop", first_step(spec, rank)
    with (folder / f"times.{rank}.jsonl").open("a", buffering=1) as times:
        while not (stop.exists() and step > int(stop.read_text() or 10**9)):
            mine = batch(rank, ranks, step)
            time.sleep(spec["step_s"])
            reduce()
            if run is not None:
                run.observe(**mine)
                run.flush(step, {"reward": 0.5})
            times.write(json.dumps([step, time.time()]) + "\n")
            step += 1
    if run is not None:
        run.close()


def _collective(spec: dict[str, Any], rank: int) -> Any:
    import torch
    import torch.distributed as dist

    store = dist.FileStore(str(Path(spec["folder"], "rendezvous")), spec["ranks"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=spec["ranks"], timeout=GROUP_LIMIT)
    return lambda: dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
