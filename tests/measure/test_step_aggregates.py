"""Which columns a batch brought, and the trainer's own numbers where none is finite."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab import token_batch
from trimtab.measure.sequences.step_aggregates import STEP_WINDOW, StepAggregates, observed_columns
from trimtab.types import Window


def _kl(numbers):
    aggregates = StepAggregates()
    for step, number in enumerate(numbers):
        aggregates.add(step, {"kl": number})
    (reading,) = aggregates.apply([], Window(0, STEP_WINDOW - 1))
    return reading


def test_a_mean_of_no_finite_number_is_nan_and_never_zero():
    reading = _kl([math.nan, math.inf] * 5)
    assert reading.key == "aggregate/kl"
    assert math.isnan(reading.value)
    assert (reading.n_tokens, reading.excluded) == (0, {"not finite": 10})
    some = _kl([math.nan, 3.0, 5.0] + [math.inf] * 7)
    assert (some.value, some.n_tokens, some.excluded) == (4.0, 2, {"not finite": 8})


@pytest.mark.parametrize("scored", [[False, False], [True, False]])
def test_a_reference_that_scored_no_sequence_did_not_arrive(scored):
    batch = token_batch(
        np.ones((2, 3), bool), logprobs=np.full((2, 3), -1.0), ref_logprobs=np.full((2, 3), -1.5),
        ref_scored=np.array(scored),
    )  # fmt: skip
    assert observed_columns(batch) == ({"logprobs", "ref_logprobs"} if any(scored) else {"logprobs"})
