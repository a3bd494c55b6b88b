"""The size of one update: rows of the batch just trained on, scored again by the weights after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trimtab.adapters.trl.reference import FSDP2, RowSampler, forward_logps, quiet, sharded_by
from trimtab.monitor import Run

_COLUMNS = ("loss_mask", "exists", "tool_tokens", "episode_id")


class UpdateScorer:
    """Draws a fraction of the rows of each step and scores them after the optimizer's step.

    `reason` says why it cannot; it is empty when it can.
    """

    def __init__(self, trainer: Any, run: Run, fraction: float) -> None:
        self.trainer, self.run = trainer, run
        self.sampler = RowSampler(fraction, trainer.args.seed + 1)  # other rows than the reference scores
        self.reason = "" if fraction > 0 else "switched off with update_rows=0"
        sharding = sharded_by(trainer)
        if sharding and sharding != FSDP2:
            self.reason = f"weights are sharded by {sharding}: rows are not scored again"
        elif any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in trainer.model.modules()):
            self.reason = "the policy is trained with dropout, so its scores differ without an update"

    def score(self, batch: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Score a sample of one micro-batch; `arrays` are its arguments of `token_batch`, of before."""
        rows = self.sampler.pick(batch["completion_ids"].size(0))
        if self.reason or not rows.numel():
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        with quiet(model):
            after = forward_logps(self.trainer, model, batch, rows.to(batch["completion_ids"].device))
        chosen = rows.numpy()
        columns = {name: arrays[name][chosen] for name in _COLUMNS if name in arrays}
        if "tools" in arrays:
            columns["tools"] = [arrays["tools"][row] for row in chosen.tolist()]
            columns["tool_names"] = arrays["tool_names"]
        self.run.observe_update(arrays["logprobs"][chosen], after.float().cpu().numpy(), **columns)
