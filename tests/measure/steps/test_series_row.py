"""A step's series as a row: back to the same numbers, and refused where it is damaged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trimtab.errors import SummaryError
from trimtab.measure.steps.series_row import row_bytes, series_from_row, series_row, tables_of
from trimtab.measure.steps.step_series import StepSeries


def make(step: int) -> StepSeries:
    values = np.array([[1.5, np.nan, -np.inf], [0.0, 2.0**step, 3.25]])
    tokens = np.array([[5, 0, 2**32 - 1], [7, 8, 9]])
    return StepSeries(
        step, ("a", "b"), ("all", "text", "x/y"), values, values / 4, tokens, tokens // 5, {"a": "why"}
    )


def test_a_row_is_the_series_and_back() -> None:
    rows = [json.loads(json.dumps(series_row(make(step)))) for step in (3, 4)]
    for step, row in zip((3, 4), rows, strict=True):
        one, back = make(step), series_from_row(row)
        assert (back.step, back.names, back.slices, back.reasons) == (
            step,
            one.names,
            one.slices,
            one.reasons,
        )
        for name in ("values", "errors", "num_tokens", "num_trajectories"):
            np.testing.assert_array_equal(getattr(back, name), getattr(one, name))
    layout = make(3).names, make(3).slices
    numbers, counts = tables_of(layout, [row_bytes(row, layout) for row in rows])
    np.testing.assert_array_equal(numbers, [[make(s).values, make(s).errors] for s in (3, 4)])
    np.testing.assert_array_equal(counts, [[make(s).num_tokens, make(s).num_trajectories] for s in (3, 4)])


@pytest.mark.parametrize(
    "change", [{"names": ["a"]}, {"names": ["a", "b", "c"]}, {"numbers": "x"}, {"counts": ""}]
)
def test_a_damaged_row_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SummaryError, match=r"instead of|not the numbers"):
        series_from_row(series_row(make(3)) | change)
