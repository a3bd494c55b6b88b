"""TokenBatch: what is accepted, what is refused, and which tokens land in which slice."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab import BatchError, token_batch
from trimtab.capture import cells_of

T, F = True, False
#        text text tool tool near near later tool near
MASK = np.array([[T, T, F, F, T, T, T, F, T], [T, T, T, F, F, F, F, F, F]])
EXISTS = np.array([[T] * 9, [T, T, T, F, F, F, F, F, F]])


def build(**changes):
    arguments = {
        "loss_mask": MASK, "exists": EXISTS, "logprobs": np.full(MASK.shape, -1.0), "near": 2,
        "tools": [["search", "stock"], []], "tool_names": ("search",),
    }  # fmt: skip
    return token_batch(**{**arguments, **changes})


def test_phase_turn_and_tool_of_every_token():
    batch = build()
    assert batch.lengths.tolist() == [9, 3]
    assert batch.phase.tolist() == [0, 0, 1, 1, 1, 1, 2, 1, 1, 0, 0, 0]
    assert batch.turn.tolist() == [1, 1, 2, 2, 2, 2, 2, 3, 3, 1, 1, 1]
    assert batch.tool.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 0, 0, 0]  # 2 = other: stock is not in the table


def test_slices_are_sums_of_disjoint_cells():
    cells = cells_of(build())
    counts = np.bincount(cells.index, minlength=cells.num_cells)
    size = {name: int(counts[list(rows)].sum()) for name, rows in cells.slices.items()}
    assert size == {
        "all": 9, "text": 5, "post_tool": 4, "phase/near": 3, "phase/later": 1,
        "post_tool/search": 3, "post_tool/other": 1, "turn/2-3": 4,
    }  # fmt: skip


def test_packed_equals_padded():
    padded = build(advantages=np.array([0.5, -1.0]))
    packed = token_batch(
        MASK[EXISTS], lengths=np.array([9, 3]), logprobs=np.full(12, -1.0), near=2,
        tools=[["search", "stock"], []], tool_names=("search",), advantages=np.array([0.5, -1.0]),
    )  # fmt: skip
    for field in ("lengths", "loss_mask", "phase", "turn", "tool", "logprobs", "advantages"):
        assert np.array_equal(getattr(padded, field), getattr(packed, field)), field


def test_default_extent_ends_at_the_last_gradient_token():
    batch = token_batch(MASK, logprobs=np.full(MASK.shape, -1.0))
    assert batch.lengths.tolist() == [9, 3]


def test_sources_become_slices():
    cells = cells_of(build(source=["math", "web"], source_names=("math",)))
    assert "source/math" in cells.slices
    assert "source/other" in cells.slices


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logprobs": np.full((2, 8), -1.0)}, ["logprobs", "(2, 8)", "(2, 9)"]),
        ({"loss_mask": 2 * MASK.astype(int)}, ["loss_mask", "boolean", "int64"]),
        ({"tool_tokens": np.full((2, 9), 0.5)}, ["tool_tokens", "boolean"]),
        ({"logprobs": np.full(MASK.shape, 0.3)}, ["logprobs", "0.3", "above zero"]),
        ({"logprob": np.full(MASK.shape, -1.0)}, ["unknown column 'logprob'", "logprobs"]),
        ({"reward": np.zeros(3)}, ["reward", "(3,)", "(2,)"]),
        ({"tools": [["search"]]}, ["tools", "2"]),
        ({"exists": ~EXISTS}, ["loss_mask is True where exists is False"]),
        ({"entropy": np.full(MASK.shape, "x")}, ["entropy", "numeric"]),
        ({"ref_scored": np.array([1, 2])}, ["ref_scored", "boolean"]),
    ],
)  # fmt: skip
def test_refused_with_the_field_named(changes, words):
    with pytest.raises(BatchError) as error:
        build(**changes)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_packed_without_lengths_is_refused():
    with pytest.raises(BatchError, match="lengths"):
        token_batch(MASK[0], logprobs=np.full(9, -1.0))
    with pytest.raises(BatchError, match="sum to"):
        token_batch(MASK[0], lengths=np.array([3, 3]), logprobs=np.full(9, -1.0))


def test_nan_and_infinity_pass_and_padding_is_not_looked_at():
    logprobs = np.full(MASK.shape, -1.0)
    logprobs[0, 0], logprobs[0, 1], logprobs[1, 5] = np.nan, -np.inf, 7.0  # the last is padding
    assert np.isnan(build(logprobs=logprobs).logprobs[0])


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1)])
def test_empty_and_one_token(shape):
    batch = token_batch(np.ones(shape, bool), logprobs=np.full(shape, -1.0))
    assert batch.num_tokens == shape[0] * shape[1]
    assert cells_of(batch).num_cells == (1 if batch.num_tokens else 0)


def test_all_masked_has_no_cells():
    assert cells_of(token_batch(np.zeros((2, 4), bool), exists=np.ones((2, 4), bool))).slices == {}
