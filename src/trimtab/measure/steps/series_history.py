"""The series of the last steps of a live run, for detectors and views to read."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from trimtab.measure.steps.ewma import Ewma, Smoothed
from trimtab.measure.steps.step_series import StepSeries
from trimtab.typing import Float64, Int64

MAX_STEPS = 64
"""Steps that a live run keeps (default, not calibrated)."""


class SeriesArrays(NamedTuple):
    """One series of one slice over steps; only steps that have a value."""

    steps: Int64
    values: Float64
    errors: Float64
    num_tokens: Int64
    num_trajectories: Int64


class SeriesHistory:
    """Keeps the series of the last `MAX_STEPS` steps, oldest first.

    Example:
        run.flush(step)
        level = run.series.smoothed("total/p95", "post_tool")
        if level.value - 3 * level.error > 0.15: ...
    """

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self._steps: deque[StepSeries] = deque(maxlen=max_steps)

    def append(self, series: StepSeries) -> None:
        """Add the series of the next step."""
        self._steps.append(series)

    @property
    def latest(self) -> StepSeries | None:
        """The last step's; None before the first."""
        return self._steps[-1] if self._steps else None

    def last(self, num: int) -> list[StepSeries]:
        """The last `num` steps there are, oldest first."""
        return list(self._steps)[-num:]

    def pairs(self) -> list[tuple[str, str]]:
        """(series, slice) of every value of the last step."""
        if self.latest is None:
            return []
        last = self.latest
        rows, columns = np.nonzero(last.num_trajectories)
        return [(last.names[i], last.slices[j]) for i, j in zip(rows.tolist(), columns.tolist(), strict=True)]

    def arrays(self, name: str, slice_name: str = "all") -> SeriesArrays:
        """The steps that have a value of this series in this slice."""
        points = [(s.step, p) for s in self._steps if (p := s.get(name, slice_name)) is not None]
        steps = np.array([step for step, _ in points], np.int64)
        fields = list(zip(*(point for _, point in points), strict=True)) or [()] * 4
        values, errors = (np.array(field, np.float64) for field in fields[:2])
        return SeriesArrays(steps, values, errors, *(np.array(field, np.int64) for field in fields[2:]))

    def smoothed(
        self, name: str, slice_name: str = "all", *, decay: float = 0.75, max_steps: int = 12
    ) -> Smoothed:
        """Return the weighted mean over the last steps; steps without a value age the others."""
        ewma = Ewma(decay, max_steps)
        for series in list(self._steps)[-max_steps:]:
            point = series.get(name, slice_name)
            ewma.update(
                math.nan if point is None else point.value, math.nan if point is None else point.error
            )
        return ewma.get()
