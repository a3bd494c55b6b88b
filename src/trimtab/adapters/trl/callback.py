"""The end of an optimizer step: its metrics are collected, and the run is flushed.

transformers calls `_maybe_log_save_evaluate` once after every optimizer step, with the gradient norm, before
`log`; so the step is flushed there, and its readings are ready when `log` runs. An evaluation runs after it,
so its loss counts for the next step, and that of an evaluation after the last step for none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Protocol

import trl
from transformers import TrainerCallback

from trimtab.adapters.trl.control.checkpoint_facts import (
    checkpoint_folder,
    data_position,
    sampler_position,
    training_settings,
)
from trimtab.adapters.trl.preference_trainers import chance_loss
from trimtab.monitor import Run
from trimtab.monitor.run_end import end_of

_RENAMED = {"reward_std": "rewards/batch_std"}
"""TRL's `reward_std` is over all rewards of a step; trimtab's is within groups, from the batch."""


class Capture(Protocol):
    """What a trainer-specific capture offers the step closer."""

    def begin(self) -> None:
        """Training is about to begin: the weights are where they stay."""
        ...

    def agree(self, step: int, /) -> None:
        """Settle with the other ranks what is scored; called outside isolation, as it may be a collective."""
        ...

    def close_step(self, step: int, /) -> dict[str, float]:
        """Observe what is pending, and return metrics of its own (the loss)."""
        ...

    def absent(self) -> dict[str, str]:
        """Return the columns that this trainer does not give, with the reason."""
        ...


class StepCloser(TrainerCallback):
    """Wraps `_maybe_log_save_evaluate` and `log` of one trainer and flushes the run once a step."""

    def __init__(self, trainer: Any, run: Run, capture: Capture | None, log_readings: bool) -> None:
        self.trainer, self.run, self.capture, self.log_readings = trainer, run, capture, log_readings
        self.started = time.perf_counter()
        self.lengths: dict[str, int] = {}
        self.constants = chance_loss(trainer)
        self.evaluated: dict[str, float] = {}
        self.loss_before = 0.0  # transformers adds losses up until it logs them
        self._inner_close = trainer._maybe_log_save_evaluate
        self._inner_log = trainer.log
        self._inner_train = trainer.train
        trainer.train = self._train
        trainer._maybe_log_save_evaluate = self._close
        trainer.log = self._log
        trainer.add_callback(self)

    def _train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._inner_train(*args, **kwargs)
        except BaseException as error:  # recorded, and raised on
            self.run.end(*end_of(error))
            raise

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Open the run: after a resume or a second `train()` in a new session when steps start over."""
        with self.run.isolated("train begin"):
            self.run.begin(int(state.global_step) + 1)
        with self.run.isolated("copy the weights"):
            if self.capture is not None:
                self.capture.begin()
        self.started, self.loss_before = time.perf_counter(), 0.0

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Record the checkpoint that was just saved; one rank does, for all of them."""
        if not state.is_world_process_zero:
            return
        with self.run.isolated("record a checkpoint", "checkpoints"):
            trainer = self.trainer
            self.run.checkpoint(
                int(state.global_step),
                checkpoint_folder(trainer),
                data_position(trainer),
                training_settings(trainer),
                sampler_position(trainer),
            )

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Record that the run finished; it stays open for a second `train()`."""
        self.run.end("finished")

    def _close(self, *args: Any, **kwargs: Any) -> Any:
        step = int(self.trainer.state.global_step)
        if step == self.run.last_step:  # transformers calls this once more at the end of an epoch
            return self._finish(*args, **kwargs)
        if self.capture is not None:
            self.capture.agree(step)
        with self.run.isolated("close step"):
            metrics = {**self._metrics(), **self.constants, **self.evaluated}
            self.evaluated = {}
            norm = kwargs.get("grad_norm", args[1] if len(args) > 1 else None)
            if norm is not None:
                metrics["grad_norm"] = float(norm)
            absent: dict[str, str] = {}
            if self.capture is not None:
                metrics |= self.capture.close_step(step)
                absent = self.capture.absent()
            if "loss" not in metrics:
                metrics["loss"] = float(_summed_loss(args, kwargs)) - self.loss_before
            duration = time.perf_counter() - self.started
            self.run.flush(step, metrics, absent, duration)
        self.started = time.perf_counter()
        return self._finish(*args, **kwargs)

    def _finish(self, *args: Any, **kwargs: Any) -> Any:
        result = self._inner_close(*args, **kwargs)
        with self.run.isolated("read loss"):
            self.loss_before = float(_summed_loss(args, kwargs))
        return result

    def _log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> Any:
        if self.log_readings and "loss" in logs and self.trainer.model.training:
            with self.run.isolated("log"):
                logs.update(self.run.latest)
        if not isinstance(self.trainer, trl.GRPOTrainer) and "eval_loss" in logs:
            self.evaluated["eval_loss"] = logs["eval_loss"]  # an evaluation follows the flush of its step
        result = self._inner_log(logs, *args, **kwargs)
        self.lengths = {}  # TRL has emptied its lists
        return result

    def _metrics(self) -> dict[str, float]:
        """Return the means of what the trainer's metric lists gained since the last step."""
        means: dict[str, float] = {}
        lists = getattr(self.trainer, "_metrics", {}).get("train", {})
        for name, values in lists.items():
            known = self.lengths.get(name, 0)
            new = values[known:] if len(values) >= known else values
            self.lengths[name] = len(values)
            numbers = [math.nan if value is None else float(value) for value in new]
            if numbers:
                means[_RENAMED.get(name, name)] = (
                    math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else math.nan
                )
        return means


def _summed_loss(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return `tr_loss` of `_maybe_log_save_evaluate`: the losses of the steps since the last log."""
    return kwargs["tr_loss"] if "tr_loss" in kwargs else args[0]
