"""The series of the open step: what it needs until the flush, and its row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.detect.step_readings import step_readings
from trimtab.measure.steps.measure_step import measure_step
from trimtab.measure.steps.opposed_parts import BEFORE, RECENT, opposed_parts
from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.measure.steps.series_row import series_row
from trimtab.measure.steps.step_outcomes import estimates, tool_columns
from trimtab.measure.steps.step_series import StepSeries
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Reading, TokenBatch

_SERIES_OF = {"batch": "update", "probes": "probe_update"}


class SeriesRecorder:
    """Keeps the batches of the open step; `close` measures them and adds the step to `history`."""

    def __init__(self, solved_at: float | None) -> None:
        self.history = SeriesHistory()
        self.solved_at = solved_at
        self._low, self._high = math.inf, -math.inf  # of all rewards so far
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

    def close(
        self, step: int, gradient_norm: float | None, calls: Sequence[ToolCall] = ()
    ) -> tuple[list[dict[str, Any]], list[Reading]]:
        """Measure the step; return its row and the readings that rules judge, none where it had no tokens."""
        if not self._batches and not self._updates:
            return [], []
        series = measure_step(
            step, self._batches, updates=self._updates, solved_at=self.solved_at,
            gradient_norm=gradient_norm, reward_bar=self._middle(),
        )  # fmt: skip
        series = self._with_history(series, calls)
        self.history.append(series)
        return [series_row(series)], step_readings(series)

    def _middle(self) -> float | None:
        """The middle of all rewards so far; None before the first."""
        rewards = [
            batch.reward[~np.isnan(batch.reward)] for batch in self._batches if batch.reward is not None
        ]
        for values in (one for one in rewards if one.size):
            self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        return (self._low + self._high) / 2 if self._high > self._low else None

    def _with_history(self, series: StepSeries, calls: Sequence[ToolCall]) -> StepSeries:
        """Add errors of tools, and what rests on the steps before: parts of the reward that go apart."""
        columns = series.columns()
        tool_columns(calls, columns)
        value = opposed_parts([*self.history.last(RECENT + BEFORE - 1), series])
        if not math.isnan(value):
            num = sum(batch.num_sequences for batch in self._batches)
            columns["reward_part/opposed"] = estimates([("all", value, math.nan, num)])
        return StepSeries.of(series.step, columns, series.reasons)
