"""Caps on importance weights for any GRPOTrainer whose batches carry the sampler's log-probabilities.

TRL corrects for the sampler under vLLM alone. Here the weight pi_theta/mu is taken from the forward of the
loss itself and put on the advantages, which TRL accepts by token (B, T). B rows, T completion tokens.
"""

from __future__ import annotations

import math
from typing import Any

import torch


class WeightCaps:
    """Two caps, both infinite until set: `token` truncates weights, `sequence` drops rows.

    token: each token's advantage is multiplied by min(pi_theta/mu, token).
    sequence: rows whose weight, the product over their tokens, is outside [1/sequence, sequence] get no
    gradient.

    `take_ess_frac` gives the effective fraction of sequences that the raw weights of an optimizer step leave.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.token, self.sequence = trainer, math.inf, math.inf
        self._inputs: dict[str, Any] | None = None
        self._sequence_logs: list[torch.Tensor] = []  # of the micro-batches since the last update
        self._inner_loss = trainer._compute_loss
        self._inner_logps = trainer._get_per_token_logps_and_entropies
        trainer._compute_loss = self._compute_loss
        trainer._get_per_token_logps_and_entropies = self._logps

    @property
    def has_mu(self) -> bool:
        """Do the batches of this trainer carry the sampler's log-probabilities?"""
        trainer = self.trainer
        records = hasattr(trainer, "guard_ports")  # MiniRLTrainer records its own sampling
        return bool(trainer.use_vllm or trainer.rollout_func is not None or records)

    @property
    def by_token(self) -> bool:
        """Does the loss take advantages by token?"""
        trainer = self.trainer
        return bool(trainer.importance_sampling_level == "token" and trainer.loss_type != "vespo")

    def _compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.trainer.model.training or inputs.get("sampling_per_token_logps") is None:
            return self._inner_loss(model, inputs, *args, **kwargs)
        self._inputs = own = dict(inputs)  # what the watch sees stays as it was
        try:
            return self._inner_loss(model, own, *args, **kwargs)
        finally:
            self._inputs = None

    def _logps(self, *args: Any, **kwargs: Any) -> Any:
        result = self._inner_logps(*args, **kwargs)
        if self._inputs is not None:  # the first call inside the loss is the policy's
            inputs, self._inputs = self._inputs, None
            self._apply(inputs, result[0].detach())
        return result

    def take_ess_frac(self) -> float | None:
        """Return (sum w)^2 / (n sum w^2) of the sequence weights since the last call; None without any."""
        if not self._sequence_logs:
            return None
        logs = torch.cat(self._sequence_logs).double()
        self._sequence_logs = []
        weights = (logs - logs.max()).exp()
        return float(weights.sum() ** 2 / (weights.square().sum() * weights.numel()))

    def _apply(self, inputs: dict[str, Any], logprobs: torch.Tensor) -> None:
        """Remember the raw weights of a micro-batch, and put those within the caps on its advantages."""
        mask = inputs["completion_mask"] > 0
        if inputs.get("tool_mask") is not None:
            mask = mask & (inputs["tool_mask"] > 0)
        raw = logprobs - inputs["sampling_per_token_logps"]
        logs = torch.where(mask & torch.isfinite(raw), raw, 0.0)  # an unknown sampler: weight 1
        self._sequence_logs.append(logs.sum(dim=1))
        if math.isfinite(self.token) or math.isfinite(self.sequence):
            inputs["advantages"] = self._weighted(inputs, mask, logs)

    def _weighted(self, inputs: dict[str, Any], mask: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
        advantages: torch.Tensor = inputs["advantages"]
        if math.isfinite(self.sequence):
            keep = logs.sum(dim=1).abs() <= math.log(self.sequence)
            self._log("guard/dropped_sequences_frac", 1.0 - keep.double().mean())
            advantages = advantages * (keep if advantages.dim() == 1 else keep[:, None])
        if math.isfinite(self.token):
            over = mask & (logs > math.log(self.token))
            self._log("guard/capped_tokens_frac", over.sum().double() / mask.sum().clamp(min=1))
            wide = advantages[:, None] if advantages.dim() == 1 else advantages
            advantages = wide * logs.exp().clamp(max=self.token)
        return advantages

    def _log(self, name: str, value: torch.Tensor) -> None:
        self.trainer._metrics["train"][name].append(float(value))
