"""Capture from a DPOTrainer: log-probabilities of chosen and rejected tokens, by forward hooks.

DPO has no per-token method to wrap. Its batch is [chosen; rejected] rows; the policy's forward and the reference's (the
same module without gradient, when the reference is a switched-off adapter) are seen by hooks. B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trimtab.monitor import Run

_NO_REFERENCE = "no reference forward was seen (precomputed reference log-probabilities are sums, not tokens)"


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
        trainer.accelerator.unwrap_model(trainer.model).register_forward_hook(
            self._policy_hook, with_kwargs=True
        )
        if getattr(trainer, "ref_model", None) is not None:
            trainer.accelerator.unwrap_model(trainer.ref_model).register_forward_hook(
                self._reference_hook, with_kwargs=True
            )

    def _policy_hook(self, module: Any, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        del module, args
        if self._in_loss:
            with self.run.isolated("read forward"):
                if torch.is_grad_enabled():
                    self.policy = _token_logps(kwargs, output)
                else:  # the adapter is switched off: this is the reference
                    self.reference = _token_logps(kwargs, output)

    def _reference_hook(self, module: Any, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        del module, args
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
            raise RuntimeError(
                "TRL's DPO loss did not run the policy's forward under the hook: not this TRL's contract"
            )
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
            **columns,
        )

    def close_step(self, step: int) -> dict[str, float]:
        """Nothing is pending: batches are observed as they come."""
        del step
        return {}

    def absent(self) -> dict[str, str]:
        """What this trainer does not give."""
        return {} if self.saw_reference else {"drift": _NO_REFERENCE}


def _token_logps(kwargs: Mapping[str, Any], output: Any) -> torch.Tensor:
    """(B, T-1) log-probabilities of input_ids[:, 1:], with TRL's fused head or with plain logits."""
    ids = kwargs["input_ids"]
    fused = getattr(output, "log_probs", None)
    if fused is not None:
        return fused[:, -(ids.size(1) - 1) :].detach()
    logps = torch.log_softmax(output.logits[:, :-1].float(), dim=-1)
    return logps.gather(-1, ids[:, 1:, None])[..., 0].detach()
