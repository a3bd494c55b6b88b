"""One run of the pilot: the lab under TRL's GRPOTrainer, watched by the one line a user would write."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path

from reproduce.pilot.arms import PilotArm
from reproduce.pilot.controls import Controls
from reproduce.pilot.drift_aware import add_post_tool_kl, lower_sampler_precision
from reproduce.pilot.slim import slim
from trimtab.runs.seal import seal

__all__ = ["MARK", "finished", "run_one"]

MARK = "pilot.json"
WINDOW = 600  # tokens of a window: the lab writes 50 to 350 a step after a tool result
CONTROLS_EVERY = 20


def finished(folder: Path, steps: int) -> bool:
    """Has this run reached its end with at least `steps` steps?"""
    try:
        return bool(json.loads((folder / MARK).read_text())["steps"] >= steps)
    except (OSError, ValueError, KeyError):
        return False


def run_one(arm: PilotArm, folder: Path, *, seed: int, steps: int, prompts: int = 8) -> None:
    """Train, watch, measure the controls, seal. What an interrupted attempt left behind is removed first."""
    from trimtab.training.lab_grpo import lab_trainer, watch_lab

    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(folder.name + ".trainer")
    trainer = lab_trainer(arm.lab, scratch, steps=steps, seed=seed, prompts_per_step=prompts, **arm.config)
    if arm.sampler_bits:
        lower_sampler_precision(trainer, arm.sampler_bits)
    if arm.post_tool_kl:
        add_post_tool_kl(trainer, arm.post_tool_kl)
    Controls(trainer, folder / "controls.jsonl", CONTROLS_EVERY)
    run = watch_lab(trainer, folder, reference_rows=1.0, probe_every=5, min_tokens=WINDOW, state_every=10)
    start = time.time()
    trainer.train()
    run.close()
    shutil.rmtree(scratch, ignore_errors=True)
    slim(folder)
    seal(folder)
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
    (folder / MARK).write_text(json.dumps(mark, indent=1) + "\n")
