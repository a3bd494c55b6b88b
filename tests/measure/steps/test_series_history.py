"""The series of the last steps: what there is of the last one."""

from __future__ import annotations

import numpy as np

from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.measure.steps.step_series import StepSeries


def make(step: int, trajectories: list[list[int]]) -> StepSeries:
    num = np.array(trajectories)
    return StepSeries(step, ("a", "b"), ("all", "text"), num * 1.0 + step, num * 0.1, num * 5, num)


def test_pairs_are_those_with_a_value_in_the_last_step() -> None:
    history = SeriesHistory(max_steps=2)
    assert (history.pairs(), history.latest, history.last(3)) == ([], None, [])
    for step, trajectories in enumerate(([[1, 1], [1, 1]], [[2, 0], [3, 4]], [[0, 7], [0, 0]])):
        history.append(make(step, trajectories))
    assert history.pairs() == [("a", "text")]
    assert [series.step for series in history.last(3)] == [1, 2]
    arrays = history.arrays("a")
    assert (arrays.steps.tolist(), arrays.values.tolist(), arrays.num_tokens.tolist()) == ([1], [3.0], [10])
