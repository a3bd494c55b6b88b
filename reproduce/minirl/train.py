"""One run: the MiniRLTrainer as a user builds it, sampling from a copy of itself in fp8, watched by one line."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from reproduce.minirl.arms import Arm, Experiment
from reproduce.minirl.bank import WATCHED, folder_of, starts_of, state_of, write_result
from reproduce.minirl.start import start_of
from reproduce.minirl.task import LONGEST, correct, dataset, make_tokenizer
from reproduce.pilot.marks import scratch_of, unfinished_file
from trimtab.adapters.trl import watch
from trimtab.errors import RunError
from trimtab.report.run_view import RunView, load_view
from trimtab.training import MiniRLConfig, MiniRLTrainer
from trimtab.training.inference_engines import RoundedEngine

__all__ = ["MINI_BATCH", "run_one", "trainer_of"]

GROUP, MINI_BATCH = 8, 64  # responses of a question, and of an optimizer step
HELD_OUT, EVERY = (32, 4), 24  # questions and answers to each, every so many steps
WINDOW = 600  # tokens of a window of the watch: two or three mini-batches
METRICS = {
    "reward": "reward",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "length": "completions/mean_length",
    "clipped_low": "trimtab/clipped_low_frac",
    "clipped_high": "trimtab/clipped_high_frac",
    "truncated": "trimtab/truncated_frac",
    "loss": "loss",
    "policy_loss": "trimtab/policy_loss",
    "aux_loss": "aux_loss",
}
"""Series of a result -> metric of a step."""
READINGS = {
    "mismatch_kl": "kl/rollout_old/k3",
    "mismatch_k1": "kl/rollout_old/k1",
    "mismatch_p99": "mismatch/p99",
    "staleness_p99": "staleness/p99",
    "first_order_gap": "total/first_order_gap_p95",
}
"""Series of a result -> reading of the watch, over all tokens."""


def trainer_of(
    experiment: Experiment, arm: Arm, model: Path, out: Path, *, steps: int, seed: int
) -> MiniRLTrainer:
    """MiniRLTrainer of one arm. A batch of rollouts is `updates` mini-batches; questions are the same for all arms of a seed."""
    torch.set_num_threads(1)
    questions, answers = HELD_OUT
    settings: dict[str, Any] = {
        "output_dir": str(out), "max_steps": steps, "seed": seed, "learning_rate": experiment.rate, "lr_scheduler_type": "constant",
        "per_device_train_batch_size": MINI_BATCH, "steps_per_generation": experiment.updates, "num_generations": GROUP,
        "max_completion_length": LONGEST, "per_device_eval_batch_size": questions * answers, "num_generations_eval": answers,
        "eval_strategy": "steps", "eval_steps": EVERY, "eval_on_start": True, "logging_steps": 1, "report_to": [],
        "save_strategy": "no", "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True,
        "router_aux_loss_coef": 0.0,  # the paper names no such term; left out, TRL adopts the 0.01 of the model's config
    }  # fmt: skip
    prompts = -(-steps // experiment.updates) * experiment.updates * MINI_BATCH // GROUP
    return MiniRLTrainer(
        str(model), correct,
        args=MiniRLConfig(**{**settings, **arm.config}),
        train_dataset=dataset(prompts, seed), eval_dataset=dataset(questions, seed, held_out=True),
        processing_class=make_tokenizer(),
        rollout_func=RoundedEngine("fp8", max_new_tokens=LONGEST, routes=arm.config.get("routing_replay") == "R3"),
    )  # fmt: skip


def run_one(experiment: Experiment, arm: Arm, bank: Path, *, seed: int, steps: int, supervised: int) -> None:
    """Train, watch, record. What was stopped is begun anew; a folder that this script did not leave is an error."""
    folder = folder_of(bank, experiment, arm.name, seed)
    if state_of(folder, experiment) == "finished":
        raise RunError(f"{folder} holds a finished run; give another --bank, or move the run away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished_file(folder).write_text(
        f"reproduce/{experiment.script} is training this run, or was stopped; it begins anew.\n"
    )
    shutil.rmtree(folder, ignore_errors=True)
    model, scratch = start_of(supervised, starts_of(bank)), scratch_of(folder)
    began = time.time()
    trainer = trainer_of(experiment, arm, model, scratch, steps=steps, seed=seed)
    run = watch(trainer, folder / WATCHED, reference="off", min_tokens=WINDOW)
    trainer.train()
    run.close()
    shutil.rmtree(scratch, ignore_errors=True)
    view = load_view(folder / WATCHED)
    write_result(
        folder,
        {
            "experiment": experiment.name, "arm": arm.name, "seed": seed, "steps": steps, "supervised_steps": supervised,
            "config": {"learning_rate": experiment.rate, "router_aux_loss_coef": 0.0, **arm.config}, "seconds": round(time.time() - began),
            "verdict": view.verdict.word, "alarms": first_alarms(view), "held_out": held_out(trainer.state.log_history),
            "series": {**metrics_of(view), **readings_of(view)},
        },
    )  # fmt: skip


def held_out(history: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Share of right answers to the held-out questions, sampled from the fp8 copy at temperature 1."""
    rows = [row for row in history if "eval_reward" in row]
    return {"step": [row["step"] for row in rows], "value": [_short(row["eval_reward"]) for row in rows]}


def metrics_of(view: RunView) -> dict[str, dict[str, list[float]]]:
    """What the trainer logged at each step; a step without a value (several updates a batch) is left out."""
    found = {}
    for name, key in METRICS.items():
        rows = [(row["step"], row["metrics"][key]) for row in view.steps if key in row["metrics"]]
        if rows:
            found[name] = _series(rows)
    return found


def readings_of(view: RunView) -> dict[str, dict[str, list[float]]]:
    """What the watch read over all tokens, a window each."""
    return {
        name: _series([(r.step, r.value) for r in view.series(key, "all") if r.status == "ok"])
        for name, key in READINGS.items()
    }


def first_alarms(view: RunView) -> dict[str, int]:
    """Rule -> step of its first alarm."""
    found: dict[str, int] = {}
    for alarm in view.alarms:
        found[alarm.rule] = min(alarm.step, found.get(alarm.rule, alarm.step))
    return dict(sorted(found.items()))


def _series(rows: list[tuple[int, float]]) -> dict[str, list[Any]]:
    return {"step": [step for step, _ in rows], "value": [_short(value) for _, value in rows]}


def _short(value: float) -> float:
    """Four digits are more than a figure shows."""
    return float(f"{value:.4g}") if math.isfinite(value) else value
