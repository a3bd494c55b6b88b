"""One run: the lab's dense agent under MiniRLTrainer, evaluated on the same held-out prompts at the same counts of episodes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from reproduce.invariance.arms import CHECKPOINT, EVALUATED, GROUP, Cell, settings_of
from reproduce.invariance.store import begin, write_run
from trimtab.lab.experiments import ARMS as LAB_ARMS
from trimtab.lab.experiments import Arm, open_arm
from trimtab.lab.ramp import Ramp
from trimtab.lab.rollout import rollout, to_trl
from trimtab.lab.tasks import correct_reward, format_reward
from trimtab.training.lab_grpo import lab_trainer
from trimtab.training.minirl.trainer import MiniRLTrainer

__all__ = ["LAB", "evaluator", "run_one"]

LAB = Arm("text_only", alpha=Ramp.constant(0.0), both=0.0, limits=LAB_ARMS["constrained"].limits)
"""Tasks that need no tool, which a run can afford most episodes of. Their mix never depends on the step: a step is of other episodes at
another batch size."""

WEIGHTS = (0.9, 0.1)  # of the two rewards, as the trainer's
HELD_OUT = 1_000_000  # a step of the task generator that no run reaches
CHUNK = 8  # prompts a step of the task generator: the same order of prompts at every batch size
CLIPPED = "clip_ratio/region_mean"


def run_one(cell: Cell, bank: Path, episodes: int) -> None:
    """Train and record; what an interruption left is begun anew, any other folder is an error."""
    settings = settings_of(cell)
    folder = begin(bank, cell)
    minibatch = settings["per_device_train_batch_size"]
    trainer = lab_trainer(
        LAB,
        folder / "trainer",
        steps=-(-episodes // (GROUP * CHUNK)),
        seed=cell.seed,
        prompts_per_step=CHUNK,
        generations=GROUP,
        kind=MiniRLTrainer,
        **{**settings, "max_steps": episodes // minibatch, "logging_steps": CHECKPOINT // minibatch},
    )
    trainer.remove_callback(PrinterCallback)
    recorder = Recorder(CHECKPOINT // minibatch, minibatch, evaluator(cell.seed))
    recorder.measure(trainer.model, 0)
    trainer.add_callback(recorder)
    wall, cpu = time.monotonic(), time.process_time()
    trainer.train()
    spent = {"wall_s": time.monotonic() - wall, "cpu_s": time.process_time() - cpu - recorder.cpu_s}
    clipped = [row[CLIPPED] for row in trainer.state.log_history if CLIPPED in row]
    shutil.rmtree(folder / "trainer", ignore_errors=True)
    write_run(bank, cell, episodes, settings, recorder.rows, clipped, spent)


def evaluator(seed: int) -> Callable[[Any], dict[str, float]]:
    """Mean rewards of a model on `EVALUATED` held-out prompts of the seed's world, sampled with the same random numbers each time."""
    opened = open_arm(LAB, steps=1, seed=seed)
    prompts = [opened.tasks.prompt(HELD_OUT, row) for row in range(EVALUATED)]

    def evaluate(model: Any) -> dict[str, float]:
        played = to_trl(rollout(model, prompts, opened.toolbox, step=HELD_OUT, seed=seed, limits=LAB.limits))
        right, formed = correct_reward(**played), format_reward(**played)
        correct, shaped = sum(right) / len(right), sum(formed) / len(formed)
        return {"reward": WEIGHTS[0] * correct + WEIGHTS[1] * shaped, "correct": correct, "format": shaped}

    return evaluate


class Recorder(TrainerCallback):
    """Every `every` optimizer steps: rewards of the policy as it is, and the mean square of the gradient's norm since the last time."""

    def __init__(self, every: int, minibatch: int, evaluate: Callable[[Any], dict[str, float]]) -> None:
        self.every, self.minibatch, self.evaluate = every, minibatch, evaluate
        self.rows: list[dict[str, float]] = []
        self.squares: list[float] = []
        self.cpu_s = 0.0

    def measure(self, model: Any, step: int) -> None:
        """One row."""
        with self._aside():
            square = {"grad_square": sum(self.squares) / len(self.squares)} if self.squares else {}
            self.rows.append({"episodes": step * self.minibatch, **self.evaluate(model), **square})
            self.squares.clear()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The gradient is whole, and nothing has bounded it."""
        del args, state, control
        with self._aside():
            norms = [weight.grad.norm() for weight in model.parameters() if weight.grad is not None]
            self.squares.append(float(torch.stack(norms).square().sum()))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """The policy has learnt from step x minibatch episodes."""
        del args, control
        if state.global_step % self.every == 0:
            self.measure(model, state.global_step)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Time of ours, which is not the method's."""
        start = time.process_time()
        try:
            yield
        finally:
            self.cpu_s += time.process_time() - start
