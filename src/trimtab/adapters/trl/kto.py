"""What TRL's losses are at a policy equal to its reference, and the balance of KTO's examples."""

from __future__ import annotations

import math
from typing import Any

import trl

from trimtab.measure.sequences.preference import CHANCE_KEY
from trimtab.monitor import Run

_LOG2 = {"sigmoid", "sigmoid_norm", "robust"}


def chance_loss(trainer: Any) -> dict[str, float]:
    """The metric `chance_loss` of a DPO, KTO or reward trainer (nan: not known for its loss); none of another trainer."""
    if isinstance(trainer, trl.RewardTrainer):
        return {CHANCE_KEY: math.log(2.0)}
    if isinstance(trainer, trl.KTOTrainer):
        plain = trainer.loss_type == "kto" and trainer.desirable_weight == trainer.undesirable_weight == 1.0
        return {CHANCE_KEY: 0.5 if plain else math.nan}
    if isinstance(trainer, trl.DPOTrainer):
        weights = getattr(trainer, "loss_weights", None) or [1.0] * len(trainer.loss_types)
        pairs = zip(trainer.loss_types, weights, strict=True)
        return {CHANCE_KEY: math.fsum(weight * _of_dpo(trainer, kind) for kind, weight in pairs)}
    return {}


def _of_dpo(trainer: Any, kind: str) -> float:
    if kind in _LOG2:
        return math.log(2.0)
    if kind == "ipo":
        return float((0.5 / trainer.beta) ** 2)
    return 1.0 if kind == "hinge" else math.nan


class KtoCapture:
    """Counts desirable and all examples of a step of a KTOTrainer, from its batches."""

    def __init__(self, trainer: Any, run: Run) -> None:
        self.trainer, self.run = trainer, run
        self.desirable = self.examples = 0
        self._inner = trainer.compute_loss
        trainer.compute_loss = self._compute_loss

    def _compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.trainer.model.training:
            with self.run.isolated("count examples"):
                labels = [bool(label) for label in inputs["label"]]  # a tensor, or a list in older releases
                self.desirable += sum(labels)
                self.examples += len(labels)
        return self._inner(model, inputs, *args, **kwargs)

    def close_step(self, step: int) -> dict[str, float]:
        """`desirable_frac` of the step's examples."""
        del step
        found = {"desirable_frac": self.desirable / self.examples} if self.examples else {}
        self.desirable = self.examples = 0
        return found

    def absent(self) -> dict[str, str]:
        """KTO has no per-token method to read."""
        return {}
