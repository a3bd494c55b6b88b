"""Faults in mid-run under TRL: stale rollouts, a quantised sampler, a shifted trainer, a high rate.

The regime is that of the collapse bank (reproduce/collapse_bank/regimes.py): 48 rollouts a step, learning
rate 7e-4, rollouts one update old as in an asynchronous trainer, and no correction for it. Until the fault a
run equals the run without it, number for number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from trimtab.errors import TrimtabError
from trimtab.lab.experiments import Arm
from trimtab.lab.model import load_agent
from trimtab.lab.ramp import Ramp
from trimtab.lab.rollout import Limits
from trimtab.lab.tool_output import OutputStyle
from trimtab.training.lab_grpo import lab_trainer
from trimtab.training.minirl.trainer import MiniRLTrainer

__all__ = ["FAULTS", "Conditions", "FaultPlan", "LabSampler", "fault_trainer"]

ARM = Arm(
    "faults",
    OutputStyle(open=True, length=Ramp.constant(4), rare=Ramp.constant(0.3)),
    alpha=Ramp(0.15, 0.6, start=0, span=60),
    limits=Limits(max_tokens=40),
)
PROMPTS, GENERATIONS = 6, 8


@dataclass(frozen=True)
class Conditions:
    """Under which conditions a batch is sampled and scored."""

    lag: int = 1
    """Updates that the trainer is ahead of the weights that sample, where it has made that many."""
    bits: int = 0
    """Bits of the sampler's matrices; 0: the trainer's own float32."""
    shifted: bool = False
    """The trainer reads each token's log-probability one position too late."""
    rate: float = 1.0
    """Factor on the scheduled learning rate."""


FAULTS: Mapping[str, Conditions] = {
    "none": Conditions(),
    "stale": Conditions(lag=8),
    "quantised": Conditions(bits=4),
    "shifted": Conditions(shifted=True),
    "rate": Conditions(rate=6.0),
}
"""Fault -> the conditions from its step on. Rollouts of `stale` grow older by one update a step, up to 8."""


@dataclass(frozen=True)
class FaultPlan:
    """One run: `fault` acts from the optimizer step `fault_step` on, the first step being 1."""

    fault: str = "none"
    fault_step: int = 60
    steps: int = 110
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of GRPOConfig (or of MiniRLConfig) that differ from the regime's."""

    def at(self, step: int) -> Conditions:
        """Return the conditions of the batch that is trained on at a step."""
        return FAULTS[self.fault if step >= self.fault_step else "none"]


def fault_trainer(
    output: str | Path, plan: FaultPlan, kind: type[GRPOTrainer] = GRPOTrainer, **options: Any
) -> GRPOTrainer:
    """Return a trainer of the shipped agent that meets the plan's fault; it has the attribute `lab_sampler`.

    `options` are those of `lab_trainer`. Raises TrimtabError for an unknown fault.
    """
    if plan.fault not in FAULTS:
        raise TrimtabError(f"no fault called {plan.fault!r}; there are {', '.join(FAULTS)}")
    own_loss = {} if issubclass(kind, MiniRLTrainer) else {"loss_type": "grpo"}
    settings = {"learning_rate": 7e-4, **own_loss, **plan.config}
    trainer = lab_trainer(
        ARM,
        output,
        steps=plan.steps,
        seed=plan.seed,
        prompts_per_step=PROMPTS,
        generations=GENERATIONS,
        kind=kind,
        **options,
        **settings,
    )
    trainer.lab_sampler = LabSampler(trainer, plan)
    trainer.add_callback(RateFault(plan))
    return trainer


class RateFault(TrainerCallback):
    """Multiplies the scheduled learning rate, as a wrong schedule would."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan

    def on_step_begin(
        self, _args: Any, state: Any, _control: Any, *, optimizer: Any, lr_scheduler: Any, **_: Any
    ) -> None:
        """Set the rate of the step that begins."""
        factor = self.plan.at(int(state.global_step) + 1).rate
        for group, rate in zip(optimizer.param_groups, lr_scheduler.get_last_lr(), strict=True):
            group["lr"] = factor * rate


class LabSampler:
    """The rollout_func of a trainer: samples with weights some updates old, and says which.

    `policy_version` counts updates: the weights of version 3 have been updated three times.
    """

    def __init__(self, trainer: GRPOTrainer, plan: FaultPlan) -> None:
        self.plan, self.version = plan, 0
        self.max_lag = math.inf  # older rollouts are dropped, and fresh ones sampled
        self._rollout = trainer.rollout_func
        self._snapshots: dict[int, dict[str, torch.Tensor]] = {}
        live = trainer.accelerator.unwrap_model(trainer.model)
        # a copy of the live module would run the live weights, to which TRL has bound its forward
        self._model = load_agent()[0].eval().requires_grad_(False)
        self._shifted = False
        live.base_model.register_forward_hook(self._shift)
        trainer.rollout_func = self

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Play the prompts; the log-probabilities are those the tokens were sampled from."""
        updates = int(trainer.state.global_step)
        conditions = self.plan.at(updates + 1)
        live = trainer.accelerator.unwrap_model(trainer.model)
        self._snapshots[updates] = {name: value.detach().clone() for name, value in live.state_dict().items()}
        self.version = min(updates, max(self.version, updates - int(min(conditions.lag, self.max_lag))))
        self._snapshots = {v: state for v, state in self._snapshots.items() if v >= self.version}
        weights = self._snapshots[self.version]
        self._model.load_state_dict({name: quantised(w, conditions.bits) for name, w in weights.items()})
        self._shifted = conditions.shifted
        sampler = SimpleNamespace(accelerator=trainer.accelerator, model=self._model, state=trainer.state)
        result = self._rollout(prompts, sampler)
        return {**result, "policy_version": [self.version] * len(prompts)}

    def resynchronise(self, trainer: Any) -> None:
        """Sample with the weights of now: a guard has restored them."""
        self._snapshots.clear()
        self.version = int(trainer.state.global_step)

    def _shift(self, _module: Any, _inputs: Any, output: Any) -> None:
        """Give the head of each position the hidden state of the next; what wraps around is not read."""
        if self._shifted:
            output.last_hidden_state = output.last_hidden_state.roll(-1, dims=1)


def quantised(weights: torch.Tensor, bits: int) -> torch.Tensor:
    """Return a matrix rounded to symmetric integers of that many bits, one scale; vectors are unchanged."""
    if not bits or weights.dim() < 2:
        return weights
    top = 2 ** (bits - 1) - 1
    scale = weights.abs().amax() / top
    return (weights / scale).round().clamp(-top, top) * scale
