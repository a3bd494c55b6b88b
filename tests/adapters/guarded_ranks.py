"""A rank of a guarded GRPOTrainer: `python -m torch.distributed.run ... -m tests.adapters.guarded_ranks MODEL FOLDER`.

Trouble is planted on rank 0 alone: what rank 1 does it has from rank 0.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from trl import GRPOTrainer

from tests.adapters.test_guarded_trl import POLICY, STEPS, WeightLog, plant
from tests.adapters.tiny_trl import grpo_config, make_tokenizer, random_reward, text_rows
from tests.support import leave_group
from trimtab.adapters.trl import watch


def digest(weights: dict[str, object]) -> str:
    """Return a checksum of all weights."""
    whole = hashlib.sha256()
    for name in sorted(weights):
        whole.update(weights[name].numpy().tobytes())
    return whole.hexdigest()


def train(model: str, folder: Path) -> None:
    """Train with two ranks, and write what this one did and which weights it had."""
    config = grpo_config(
        folder, max_steps=STEPS, learning_rate=1e-4, ddp_backend="gloo", ddp_find_unused_parameters=False
    )
    trainer = GRPOTrainer(
        model, random_reward, args=config, train_dataset=text_rows(160), processing_class=make_tokenizer()
    )
    rank = trainer.accelerator.process_index
    (folder / "policy.yaml").write_text(POLICY)
    if rank == 0:
        plant(trainer)
    run = watch(trainer, folder / "run", guard=folder / "policy.yaml", min_tokens=20, min_trajectories=2)
    weights = WeightLog(trainer)
    trainer.train()
    run.close()
    assert run.guard is not None
    report = {
        "world": trainer.accelerator.num_processes,
        "after": {step: digest(one) for step, one in weights.after.items()},
        "before": {step: digest(one) for step, one in weights.before.items()},
        "restores": run.guard.controls.restores,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]))
    leave_group()  # gloo's threads may abort a process that exits with the group alive
