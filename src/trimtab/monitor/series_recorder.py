"""The series of the open step: what it needs until the flush, and its row."""

from __future__ import annotations

from typing import Any

from trimtab.detect.step_readings import step_readings
from trimtab.measure.steps.measure_step import measure_step
from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.measure.steps.series_row import series_row
from trimtab.types import Reading, TokenBatch

_SERIES_OF = {"batch": "update", "probes": "probe_update"}


class SeriesRecorder:
    """Keeps the batches of the open step; `close` measures them and adds the step to `history`."""

    def __init__(self, solved_at: float | None) -> None:
        self.history = SeriesHistory()
        self.solved_at = solved_at
        self.next_step()

    def next_step(self) -> None:
        """Forget what was given for the step."""
        self._batches: list[TokenBatch] = []
        self._updates: dict[str, list[TokenBatch]] = {}

    def add(self, batch: TokenBatch) -> None:
        """Take a batch of the open step."""
        self._batches.append(batch)

    def add_update(self, of: str, batch: TokenBatch) -> None:
        """Take tokens scored before (`prox_logprobs`) and after (`logprobs`) an update."""
        self._updates.setdefault(_SERIES_OF[of], []).append(batch)

    def close(self, step: int, gradient_norm: float | None) -> tuple[list[dict[str, Any]], list[Reading]]:
        """Measure the step; return its row and the readings that rules judge, none where it had no tokens."""
        if not self._batches and not self._updates:
            return [], []
        series = measure_step(
            step, self._batches, updates=self._updates, solved_at=self.solved_at, gradient_norm=gradient_norm
        )
        self.history.append(series)
        return [series_row(series)], step_readings(series)
