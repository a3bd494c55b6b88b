"""Slices that share one state absorb once, and come to what slices of their own would have come to."""

from __future__ import annotations

import numpy as np

from tests.measure.policy import rich_batch
from trimtab.measure.accumulate import observe
from trimtab.measure.state.slice_state import Accumulator
from trimtab.stats import Moments


def test_shared_states_come_to_the_same_as_copies_and_arguments_stay():
    steps = []
    for step in range(4):
        state = observe(rich_batch(step))["all"]
        lone = observe(rich_batch(step + 10))["all"]
        steps.append({"one": state, "two": state, "three": state if step < 2 else lone})
    before = [{name: state.to_bytes() for name, state in step.items()} for step in steps]
    shared, plain = Accumulator(), Accumulator()
    for step in steps:
        shared.add_all(step)
        for name, state in step.items():
            plain.add(name, state.copy())
    for name in ("one", "two", "three"):
        assert shared.states[name].to_bytes() == plain.states[name].to_bytes()
    assert shared.states["one"] is shared.states["two"] is not shared.states["three"]
    assert before == [{name: state.to_bytes() for name, state in step.items()} for step in steps]


def test_moments_by_row_are_those_of_each_row():
    rng = np.random.default_rng(0)
    values, rows = rng.normal(size=500), rng.integers(0, 5, 500)
    values[::50], values[1::50] = np.nan, np.inf
    for row, found in enumerate(Moments.by_row(values, rows, 7)):
        alone = Moments()
        alone.update(values[rows == row])
        assert found == alone
