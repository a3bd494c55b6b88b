"""One run of the pilot: the lab under TRL's GRPOTrainer, watched by the one line a user would write."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path

from reproduce.pilot.arms import PilotArm
from reproduce.pilot.controls import Controls
from reproduce.pilot.drift_aware import add_post_tool_kl, lower_sampler_precision
from reproduce.pilot.marks import CONTROLS, scratch_of, state_of, unfinished_file, write_mark
from reproduce.pilot.slim import slim
from trimtab.errors import RunError
from trimtab.runs import compress_run

__all__ = ["run_one"]

WINDOW = 600  # tokens of a window: the lab writes 50 to 350 a step after a tool result
CONTROLS_EVERY = 20


def run_one(arm: PilotArm, folder: Path, *, seed: int, steps: int, prompts: int = 8) -> None:
    """Train, watch, measure the controls, seal. What this script was stopped at is begun anew; any other folder is an error."""
    from trimtab.training.lab_grpo import lab_trainer, watch_lab

    if state_of(folder) == "finished":
        raise RunError(f"{folder} holds a finished run; give another --bank, or move the run away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished_file(folder).write_text(
        "reproduce/tail_emergence.py is training this run, or was stopped; it begins anew.\n"
    )
    shutil.rmtree(folder, ignore_errors=True)
    scratch = scratch_of(folder)
    trainer = lab_trainer(arm.lab, scratch, steps=steps, seed=seed, prompts_per_step=prompts, **arm.config)
    if arm.sampler_bits:
        lower_sampler_precision(trainer, arm.sampler_bits)
    if arm.post_tool_kl:
        add_post_tool_kl(trainer, arm.post_tool_kl)
    Controls(trainer, folder / CONTROLS, CONTROLS_EVERY)
    run = watch_lab(trainer, folder, reference_rows=1.0, probe_every=5, min_tokens=WINDOW, state_every=10)
    start = time.time()
    trainer.train()
    run.close()
    shutil.rmtree(scratch, ignore_errors=True)
    slim(folder)
    compress_run(folder)
    mark = {
        "arm": arm.name,
        "family": arm.family,
        "what": arm.what,
        "seed": seed,
        "steps": steps,
        "seconds": round(time.time() - start),
        "settings": {"config": dict(arm.config), "post_tool_kl": arm.post_tool_kl, "sampler_bits": arm.sampler_bits},
        "alpha": asdict(arm.lab.alpha),
        "output": asdict(arm.lab.style),
    }  # fmt: skip
    write_mark(folder, mark)
