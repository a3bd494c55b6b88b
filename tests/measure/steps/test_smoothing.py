"""The weighted mean over steps and its error, against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.measure.steps.ewma import Ewma, combined_error


def test_weights_are_known_and_sum_to_one() -> None:
    ewma = Ewma(decay=0.5, max_steps=3)
    for value in (8.0, 1.0, math.nan, 4.0):
        ewma.update(value, 1.0)
    assert ewma.weights().tolist() == [0.2, 0.0, 0.8]  # 8.0 is too old, and the NaN aged 1.0
    smoothed = ewma.get()
    assert (smoothed.value, smoothed.num_steps) == (pytest.approx(0.2 * 1 + 0.8 * 4), 2)
    assert smoothed.error == pytest.approx(math.hypot(0.2, 0.8))


def test_the_error_of_independent_steps_is_right() -> None:
    """20,000 runs of eight steps whose errors are known: the spread of the smoothed value is its error."""
    rng = np.random.default_rng(0)
    errors = np.array([0.5, 1.0, 2.0, 0.1, 1.0, 1.0, 0.3, 0.7])
    weights = 0.75 ** np.arange(8)[::-1]
    values = rng.normal(0.0, errors, (20_000, 8)) @ (weights / weights.sum())
    ewma = Ewma(decay=0.75)
    for error in errors:
        ewma.update(0.0, error)
    assert ewma.get().error == pytest.approx(values.std(), rel=0.02)


def test_an_infinite_value_counts_and_passes() -> None:
    ewma = Ewma(max_steps=3)
    ewma.update(math.inf)
    ewma.update(1.0, 0.1)
    assert ewma.get().value == math.inf
    ewma.update(1.0, 0.1)
    ewma.update(1.0, 0.1)
    assert ewma.get().value == pytest.approx(1.0)


def test_nothing_gives_nan_and_unknown_errors_are_as_large_as_known_ones() -> None:
    empty = Ewma().get()
    assert math.isnan(empty.value)
    assert math.isnan(empty.error)
    assert empty.num_steps == 0
    assert math.isnan(combined_error([1.0], [math.nan]))
    assert combined_error([0.5, 0.5], [0.4, math.nan]) == pytest.approx(
        combined_error([0.5, 0.5], [0.4, 0.4])
    )


@pytest.mark.parametrize(("decay", "max_steps"), [(0.0, 3), (1.5, 3), (math.nan, 3), (0.5, 0)])
def test_weights_that_cannot_be_are_refused(decay: float, max_steps: int) -> None:
    with pytest.raises(ValueError, match="decay must be in"):
        Ewma(decay, max_steps)
