"""Phases of a transformers or TRL trainer's step, timed at its methods from outside.

| phase | what is timed |
|---|---|
| rollout | `_generate_single_turn` (GRPO) |
| tools | the rest of `_tool_call_loop`: the tools, and the templates of their results |
| reward | each reward function |
| sync | the rest of `_generate` and of `_calculate_rewards`: they gather, and ranks wait for the slowest |
| forward | `compute_loss`, and log-probabilities scored outside of it |
| backward | `accelerator.backward`; under DDP and FSDP with the collectives inside it |
| optimizer | from the callback before the optimizer's step to the one after it |

What the watch itself computes with these methods is not counted. Results do not change: methods are wrapped
on the instance, and what they return or raise is passed on. The clock is the host's; no device is waited for.
Asynchronous reward functions and reward models are timed inside `sync`.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from trimtab.monitor import Run

_METHODS = {
    "_generate": "sync",
    "_generate_single_turn": "rollout",
    "_tool_call_loop": "tools",
    "_calculate_rewards": "sync",
    "_get_per_token_logps_and_entropies": "forward",
    "compute_loss": "forward",
}
"""Methods of a trainer -> their phase; one that a trainer lacks is left out."""


class PhaseTimer(TrainerCallback):
    """Times the phases of one trainer into its run."""

    def __init__(self, trainer: Any, run: Run) -> None:
        self.run = run
        self._began: float | None = None
        for name, phase in _METHODS.items():
            if callable(getattr(trainer, name, None)):
                setattr(trainer, name, self._timed(phase, getattr(trainer, name)))
        if trainer.accelerator is not None:
            trainer.accelerator.backward = self._timed("backward", trainer.accelerator.backward)
        functions = getattr(trainer, "reward_funcs", None)
        if isinstance(functions, list):  # the trainer pairs them with their names by position
            trainer.reward_funcs = [self._timed_reward(one) for one in functions]
        trainer.add_callback(self)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Start the clock of the optimizer."""
        self._began = time.perf_counter()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Book what the optimizer took."""
        if self._began is not None:
            self.run.add_phase_time("optimizer", time.perf_counter() - self._began)
            self._began = None

    def _timed(self, phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.run.is_busy:  # the watch scores with the same methods
                return method(*args, **kwargs)
            with self.run.phase(phase):
                return method(*args, **kwargs)

        return call

    def _timed_reward(self, function: Any) -> Any:
        """Time a plain function; models and asynchronous functions stay as they are, inside `sync`."""
        plain = inspect.isfunction(function) or inspect.ismethod(function)
        if not plain or inspect.iscoroutinefunction(function):
            return function
        return self._timed("reward", function)
