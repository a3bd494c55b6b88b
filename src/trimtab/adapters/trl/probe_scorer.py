"""Fixed probe transcripts of a TRL run, scored at a cadence: the first with a tool result, or your own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab.adapters.trl.reference import forward_logps, quiet
from trimtab.capture import token_batch
from trimtab.monitor import Run
from trimtab.types import TokenBatch

PROBE_KEYS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
"""Integer arrays (B, .) of a set of probes; `tool_mask` is 0 on tool tokens, as in TRL."""

_MAX_ROWS = 32
_UPDATE_ROWS = 8
"""Probes scored again one step later, for the size of one update (default, not calibrated)."""


class ProbeScorer:
    """Keeps the transcripts (in the run folder, so that a resume scores the same ones) and scores them."""

    def __init__(self, run: Run, probes: Any, every: int) -> None:
        self.run, self.every = run, every
        self.off = probes == "off"
        self.path = Path(run.writer.folder) / f"probes.r{run.writer.rank}.npz"
        self.arrays: dict[str, np.ndarray] | None = None
        self._first: list[dict[str, np.ndarray]] = []
        self._last: tuple[int, np.ndarray] | None = None  # step and log-probabilities of the last scoring
        if isinstance(probes, Mapping):
            self.arrays = {key: np.asarray(probes[key]).astype(np.int64) for key in PROBE_KEYS}
        elif self.path.exists() and not self.off:
            with np.load(self.path, allow_pickle=False) as stored:
                self.arrays = {key: stored[key] for key in PROBE_KEYS}

    def keep_first(self, batch: Mapping[str, torch.Tensor]) -> None:
        """Collect the first rows with a tool result: 32, or as many as came before the first scoring."""
        if self.off or self.arrays is not None or "tool_mask" not in batch:
            return
        external = (batch["tool_mask"] == 0) & (batch["completion_mask"] > 0)
        rows = external.any(dim=1).nonzero()[:, 0][: _MAX_ROWS - len(self._first)]
        for row in rows.tolist():
            new = {key: batch[key][row].cpu().numpy().astype(np.int64) for key in PROBE_KEYS}
            if not any(all(np.array_equal(new[k], old[k]) for k in PROBE_KEYS) for old in self._first):
                self._first.append(new)  # several epochs bring the same row again
        if len(self._first) == _MAX_ROWS:
            self._keep()

    def _keep(self) -> None:
        self.arrays = _padded(self._first)
        self._first = []
        temporary = self.path.with_suffix(".tmp.npz")
        np.savez_compressed(temporary, **self.arrays)  # type: ignore[arg-type]
        temporary.replace(self.path)

    def rows(self, step: int) -> int:
        """Return the number of probes to score now; 0 where it is not time, or there are none."""
        if self.off or step % self.every:
            return 0
        if self.arrays is None and self._first:
            self._keep()
        return 0 if self.arrays is None else len(self.arrays["prompt_ids"])

    def score(self, trainer: Any, step: int, num_rows: int) -> TokenBatch:
        """Score the first probes with the live policy, which has made `step` updates."""
        logps = self._logps(trainer, num_rows)
        self._last = step, logps
        columns = self._columns(len(logps))
        return token_batch(columns.pop("loss_mask"), logprobs=logps, **columns)

    def rows_again(self, step: int) -> int:
        """Return the number of probes to score again: some, one step after all of them were scored."""
        if self._last is None or self._last[0] != step - 1:
            return 0
        return min(_UPDATE_ROWS, len(self._last[1]))

    def score_update(self, trainer: Any, num_rows: int) -> None:
        """Score the first probes again, one step after all of them, and give both scorings to the run."""
        assert self._last is not None
        before = self._last[1][:num_rows]
        after = self._logps(trainer, len(before))
        self.run.observe_update(before, after, of="probes", **self._columns(len(before)))

    def _logps(self, trainer: Any, num_rows: int) -> np.ndarray:
        """(num_rows, T) log-probabilities of the first probes."""
        assert self.arrays is not None
        model = trainer.accelerator.unwrap_model(trainer.model)
        device = next(model.parameters()).device
        batch = {key: torch.from_numpy(array).to(device) for key, array in self.arrays.items()}
        with quiet(model):
            logps = forward_logps(trainer, model, batch, torch.arange(num_rows, device=device))
        return np.asarray(logps.float().cpu().numpy())

    def _columns(self, num_rows: int) -> dict[str, Any]:
        """Masks of the first probes, as arguments of `token_batch`."""
        assert self.arrays is not None
        exists = self.arrays["completion_mask"][:num_rows] > 0
        external = exists & (self.arrays["tool_mask"][:num_rows] == 0)
        return {"loss_mask": exists & ~external, "exists": exists, "tool_tokens": external}


def _padded(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Stack rows of different batches: prompts padded on the left, completions on the right, as TRL does."""
    before = max(row["prompt_ids"].size for row in rows)
    after = max(row["completion_ids"].size for row in rows)
    arrays = {}
    for key in PROBE_KEYS:
        width, left = (before, True) if key.startswith("prompt") else (after, False)
        fill = 1 if key == "tool_mask" else 0
        table = np.full((len(rows), width), fill, np.int64)
        for i, row in enumerate(rows):
            size = row[key].size
            table[i, width - size if left else 0 : width if left else size] = row[key]
        arrays[key] = table
    return arrays
