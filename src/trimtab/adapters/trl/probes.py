"""Fixed probe transcripts of a TRL run: the first ones with a tool result, or the caller's; scored at a cadence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab.adapters.trl.reference import forward_logps, quiet
from trimtab.capture import token_batch
from trimtab.records import TokenBatch
from trimtab.watch import Run

__all__ = ["PROBE_KEYS", "ProbeScorer"]

PROBE_KEYS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
"""Integer arrays (B, .) a set of probes consists of; `tool_mask` is 0 on tool tokens, as in TRL."""

_MAX_ROWS = 32


class ProbeScorer:
    """Keeps the transcripts (in the run folder, so that a resume scores the same ones) and scores them."""

    def __init__(self, run: Run, probes: Any, every: int) -> None:
        self.run, self.every = run, every
        self.off = probes == "off"
        self.path = Path(run.writer.folder) / f"probes.r{run.writer.rank}.npz"
        self.arrays: dict[str, np.ndarray] | None = None
        if isinstance(probes, Mapping):
            self.arrays = {key: np.asarray(probes[key]).astype(np.int64) for key in PROBE_KEYS}
        elif self.path.exists() and not self.off:
            with np.load(self.path, allow_pickle=False) as stored:
                self.arrays = {key: stored[key] for key in PROBE_KEYS}

    def keep_first(self, batch: Mapping[str, torch.Tensor]) -> None:
        """Take probes from a training batch that holds tool results, once."""
        if self.off or self.arrays is not None or "tool_mask" not in batch:
            return
        external = (batch["tool_mask"] == 0) & (batch["completion_mask"] > 0)
        if not bool(external.any()):
            return
        self.arrays = {key: batch[key][:_MAX_ROWS].cpu().numpy().astype(np.int64) for key in PROBE_KEYS}
        temporary = self.path.with_suffix(".tmp.npz")
        np.savez_compressed(temporary, **self.arrays)  # type: ignore[arg-type]
        temporary.replace(self.path)

    def due(self, step: int) -> bool:
        """Is it time to score?"""
        return not self.off and self.arrays is not None and step % self.every == 0

    def score(self, trainer: Any) -> TokenBatch:
        """The probes under the live policy."""
        assert self.arrays is not None
        model = trainer.accelerator.unwrap_model(trainer.model)
        device = next(model.parameters()).device
        batch = {key: torch.from_numpy(array).to(device) for key, array in self.arrays.items()}
        with quiet(model):
            logps = forward_logps(
                trainer, model, batch, torch.arange(len(self.arrays["prompt_ids"]), device=device)
            )
        exists = self.arrays["completion_mask"] > 0
        external = exists & (self.arrays["tool_mask"] == 0)
        return token_batch(
            exists & ~external, exists=exists, tool_tokens=external, logprobs=logps.float().cpu().numpy()
        )
