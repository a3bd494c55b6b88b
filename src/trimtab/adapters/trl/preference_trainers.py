"""Capture from DPOTrainer and KTOTrainer, and the loss of a policy that is still equal to its reference.

DPO has no per-token method to wrap. Its batch holds [chosen; rejected] rows. Forward hooks read the policy
and the reference (the same module without gradient, when the reference is a switched-off adapter). B rows, T
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import trl

from trimtab.adapters.trl.metrics_only import reasons_of
from trimtab.measure.sequences.step_aggregates import CHANCE_KEY
from trimtab.monitor import Run

_NO_REFERENCE = "no reference forward was seen (precomputed reference log-probabilities are sums, not tokens)"
_NO_SAMPLER = "preference training uses given completions: nothing is sampled"
_IMPLICIT = "DPO has no reward, only implicit ones (rewards/chosen and rewards/rejected)"
_LOG2 = ("sigmoid", "sigmoid_norm", "robust")


class DpoCapture:
    """Observes each DPO micro-batch; slices `source/chosen` and `source/rejected`."""

    def __init__(self, trainer: Any, run: Run) -> None:
        self.trainer, self.run = trainer, run
        self.policy: torch.Tensor | None = None
        self.reference: torch.Tensor | None = None
        self.saw_reference = False
        self._in_loss = False
        self._inner = trainer._compute_loss
        trainer._compute_loss = self._compute_loss
        unwrap = trainer.accelerator.unwrap_model
        unwrap(trainer.model).register_forward_hook(self._policy_hook, with_kwargs=True)
        if getattr(trainer, "ref_model", None) is not None:
            unwrap(trainer.ref_model).register_forward_hook(self._reference_hook, with_kwargs=True)

    def _policy_hook(self, _module: Any, _args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        if self._in_loss:
            with self.run.isolated("read forward"):
                if torch.is_grad_enabled():
                    self.policy = _token_logps(kwargs, output)
                else:  # the adapter is switched off: this is the reference
                    self.reference = _token_logps(kwargs, output)

    def _reference_hook(self, _module: Any, _args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        if self._in_loss:
            with self.run.isolated("read forward"):
                self.reference = _token_logps(kwargs, output)

    def _compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.policy, self.reference, self._in_loss = None, None, bool(self.trainer.model.training)
        try:
            result = self._inner(model, inputs, *args, **kwargs)
        finally:
            self._in_loss = False
        if self.trainer.model.training:
            with self.run.isolated("observe batch"):
                self._observe(inputs)
        return result

    def _observe(self, inputs: Mapping[str, Any]) -> None:
        if self.policy is None:
            raise RuntimeError("TRL's DPO loss ran no policy forward under the hook: an unknown TRL version")
        width = self.policy.size(1)
        mask = (inputs["completion_mask"][:, -width:] > 0).cpu().numpy()
        half = len(mask) // 2
        columns: dict[str, Any] = {"logprobs": self.policy.float().cpu().numpy()}
        if self.reference is not None:
            self.saw_reference = True
            columns["ref_logprobs"] = self.reference.float().cpu().numpy()
        self.run.observe(
            loss_mask=mask,
            exists=mask,
            tool_tokens=np.zeros_like(mask),
            source=["chosen"] * half + ["rejected"] * (len(mask) - half),
            source_names=("chosen", "rejected"),
            reference="the trainer's own reference",
            absent={"rollout_logprobs": _NO_SAMPLER, "old_logprobs": _NO_SAMPLER},
            **columns,
        )

    def begin(self) -> None:
        """Do nothing: no weights are scored."""

    def agree(self, _step: int) -> None:
        """Do nothing: no weights are scored."""

    def close_step(self, _step: int) -> dict[str, float]:
        """Return nothing: batches are observed as they come."""
        return {}

    def absent(self) -> dict[str, str]:
        """Return the columns that this trainer does not give, with the reason."""
        missing = {"reward": _IMPLICIT}
        return missing if self.saw_reference else {**missing, "drift": _NO_REFERENCE}


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

    def begin(self) -> None:
        """Do nothing: no weights are scored."""

    def agree(self, _step: int) -> None:
        """Do nothing: no weights are scored."""

    def close_step(self, _step: int) -> dict[str, float]:
        """Return `desirable_frac`, the fraction of the step's examples that are desirable."""
        metrics = {"desirable_frac": self.desirable / self.examples} if self.examples else {}
        self.desirable = self.examples = 0
        return metrics

    def absent(self) -> dict[str, str]:
        """Return the columns that this trainer does not give, with the reason."""
        return reasons_of(self.trainer)


def chance_loss(trainer: Any) -> dict[str, float]:
    """Return the metric `chance_loss` of a DPO, KTO or reward trainer; {} for another trainer.

    The value is NaN where it is not known for the trainer's loss.
    """
    if isinstance(trainer, trl.RewardTrainer):
        return {CHANCE_KEY: math.log(2.0)}
    if isinstance(trainer, trl.KTOTrainer):
        plain = trainer.loss_type == "kto" and trainer.desirable_weight == trainer.undesirable_weight == 1.0
        return {CHANCE_KEY: 0.5 if plain else math.nan}
    if isinstance(trainer, trl.DPOTrainer):
        weights = getattr(trainer, "loss_weights", None) or [1.0] * len(trainer.loss_types)
        pairs = zip(trainer.loss_types, weights, strict=True)
        return {CHANCE_KEY: math.fsum(weight * _chance_of_dpo(trainer, kind) for kind, weight in pairs)}
    return {}


def _chance_of_dpo(trainer: Any, kind: str) -> float:
    if kind in _LOG2:
        return math.log(2.0)
    if kind == "ipo":
        return float((0.5 / trainer.beta) ** 2)
    return 1.0 if kind == "hinge" else math.nan


def _token_logps(kwargs: Mapping[str, Any], output: Any) -> torch.Tensor:
    """Return log-probabilities (B, T-1) of input_ids[:, 1:], from TRL's fused head or from plain logits."""
    ids = kwargs["input_ids"]
    fused = getattr(output, "log_probs", None)
    if fused is not None:
        return fused[:, -(ids.size(1) - 1) :].detach()
    logps = torch.log_softmax(output.logits[:, :-1].float(), dim=-1)
    return logps.gather(-1, ids[:, 1:, None])[..., 0].detach()
