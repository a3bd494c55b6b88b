"""The values of one step by series and slice, each with its standard error, tokens and trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.typing import Float64, Int64


class SeriesValue(NamedTuple):
    """One value of one step. `error`: standard error, NaN where it is unknown."""

    value: float
    error: float
    num_tokens: int
    num_trajectories: int


@dataclass(frozen=True, eq=False)
class StepSeries:
    """What one step gave: K series by S slices. A pair that was not observed has NaN and no trajectories."""

    step: int
    names: tuple[str, ...]  # K series
    slices: tuple[str, ...]  # S
    values: Float64  # (K, S)
    errors: Float64  # (K, S)
    num_tokens: Int64  # (K, S)
    num_trajectories: Int64  # (K, S)
    reasons: Mapping[str, str] = field(default_factory=dict)  # series -> why it has no values

    @classmethod
    def of(
        cls,
        step: int,
        columns: Mapping[str, tuple[tuple[str, ...], Estimates]],
        reasons: Mapping[str, str] | None = None,
    ) -> StepSeries:
        """From series -> (slices, estimates of them)."""
        slices = tuple(sorted({name for names, _ in columns.values() for name in names}))
        index = {name: i for i, name in enumerate(slices)}
        shape = len(columns), len(slices)
        numbers, counts = np.full((2, *shape), np.nan), np.zeros((2, *shape), np.int64)
        for row, (names, estimates) in enumerate(columns.values()):
            at = [index[name] for name in names]
            numbers[0, row, at], numbers[1, row, at] = estimates.values, estimates.errors
            counts[0, row, at], counts[1, row, at] = estimates.num_tokens, estimates.num_trajectories
        return cls(
            step, tuple(columns), slices, numbers[0], numbers[1], counts[0], counts[1], dict(reasons or {})
        )

    def get(self, name: str, slice_name: str = "all") -> SeriesValue | None:
        """Return the value of a series in a slice; None where the step has none."""
        row, column = self._rows.get(name), self._columns.get(slice_name)
        if row is None or column is None or not self.num_trajectories[row, column]:
            return None
        return SeriesValue(
            float(self.values[row, column]), float(self.errors[row, column]),
            int(self.num_tokens[row, column]), int(self.num_trajectories[row, column]),
        )  # fmt: skip

    def columns(self) -> dict[str, tuple[tuple[str, ...], Estimates]]:
        """Series -> (slices, estimates of them); the inverse of `of`."""
        arrays = self.values, self.errors, self.num_tokens, self.num_trajectories
        return {
            name: (self.slices, Estimates(*(array[row] for array in arrays)))
            for row, name in enumerate(self.names)
        }

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.slices)}
