"""The tail after a tool over that in text, against numpy's quantiles of the tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.measure.policy import rich_batch
from trimtab.catalog import bound
from trimtab.measure.accumulate import observe
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.tokens.log_ratio_tails import tail_ratio


def test_the_ratio_is_that_of_the_tokens_quantiles() -> None:
    batch = rich_batch(sequences=600)
    states = observe(batch)
    size = np.abs(batch.logprobs - batch.ref_logprobs)
    late = batch.turn > 1
    seen = {v.key: v for v in tail_ratio(states["text"], states["post_tool"])}
    for label, q in (("p99", 0.99), ("p95", 0.95)):
        value = seen[f"tail_ratio/{label}"]
        text, after = (np.quantile(size[batch.loss_mask & (late == side)], q) for side in (False, True))
        floor = bound("tail_floor")
        assert value.value == pytest.approx(max(after, floor) / max(text, floor), rel=0.08)
        assert value.n == np.count_nonzero(batch.loss_mask & late)
        assert 0 < value.low < value.value < value.high


@pytest.mark.parametrize("missing", ["text", "post_tool"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_slice_without_the_ratio_has_none(missing: str, empty: bool) -> None:
    states = observe(rich_batch())
    if empty:  # a state of the ratio that has seen no token
        sketch = states[missing].summaries["drift/sketch"]
        states[missing].summaries["drift/sketch"] = type(sketch)(*sketch._parameters())
    else:
        states[missing] = SliceState()
    for value in tail_ratio(states["text"], states["post_tool"]):
        assert math.isnan(value.value)
        assert (value.n, value.reason) == (0, "drift not observed in both slices")
