"""Scoring under FSDP2, where a forward gathers shards: every rank must do as many as the others, or all wait.

What a rank would score depends on what it saw (rows with a tool result, failures of its own), so the ranks
settle it first, in one small collective a step that no failure of the monitor can skip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trimtab.adapters.trl.reference import FSDP2, sharded_by


@dataclass(frozen=True)
class Settled:
    """What every rank scores this step."""

    batches: bool
    """May the micro-batches be scored: do all ranks have as many, of as many rows, and score the same way?"""
    probe_rows: int
    """Rows of the probes scored now; the fewest that any rank would."""
    update_rows: int
    """Rows of the probes scored again; the fewest that any rank would."""


class ScoringAgreement:
    """Settles what is scored; without sharded weights each rank does as it likes, and nothing is sent."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def settle(self, batches: Sequence[int], probe_rows: int, update_rows: int) -> Settled:
        """Return what all ranks do. A collective under FSDP2: call it once a step on every rank.

        Args:
            batches: Numbers that must be equal everywhere for a micro-batch to be scored; four of them.
            probe_rows: Rows of the probes that this rank would score, 0 where none are due.
            update_rows: Rows of the probes that this rank would score again.
        """
        if sharded_by(self.trainer) != FSDP2:
            return Settled(True, probe_rows, update_rows)
        device = self.trainer.accelerator.device
        own = torch.tensor([[*batches, probe_rows, update_rows]], dtype=torch.long, device=device)
        table = self.trainer.accelerator.gather(own).cpu()
        fewest = table.min(dim=0).values.tolist()
        same = bool((table[:, : len(batches)] == table[0, : len(batches)]).all())
        return Settled(same, fewest[-2], fewest[-1])
