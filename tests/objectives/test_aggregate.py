"""Denominators: the four aggregations by hand, and one gradient whatever the micro-batches and ranks."""

from __future__ import annotations

import math

import pytest
import torch

from tests.objectives.batches import make
from trimtab.errors import ObjectiveError
from trimtab.objectives.advantages import group_advantages
from trimtab.objectives.ppo import dapo, dr_grpo, grpo
from trimtab.objectives.reduction import aggregate, local_denominator, sequence_lengths
from trimtab.objectives.tensor_checks import as_mask, log_ratio
from trimtab.objectives.token_slices import Cells, count_marks, merge_counts, per_token

LOSS = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 99.0], [77.0, 88.0, 99.0]])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])


def test_the_four_aggregations_by_hand():
    assert aggregate(LOSS, MASK, denominator=3).item() == 5.0  # (7 + 8) / 3 rows
    assert aggregate(LOSS, MASK, denominator=4).item() == 3.75  # / 4 tokens
    assert aggregate(LOSS, MASK, denominator=3 * 10).item() == 0.5  # / (3 rows x length 10)
    lengths = sequence_lengths(MASK)
    assert lengths.tolist() == [3, 1, 0]
    expected = (7 / 3 + 8) / 3
    assert aggregate(LOSS, MASK, denominator=3, lengths=lengths).item() == pytest.approx(expected, abs=1e-6)


def test_a_masked_token_may_hold_anything_and_a_gradient_stays_clean():
    loss = torch.tensor([[1.0, float("nan")], [float("inf"), 2.0]], requires_grad=True)
    value = aggregate(loss, torch.tensor([[1, 0], [0, 1]]), denominator=1)
    value.backward()
    assert value.item() == 3.0
    assert loss.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_nan_inside_the_mask_is_not_hidden():
    assert math.isnan(aggregate(torch.tensor([[float("nan"), 1.0]]), torch.ones(1, 2), denominator=2).item())


def test_empty_and_all_masked_give_zero_with_a_graph():
    for rows, tokens in ((0, 4), (2, 0), (2, 3)):
        loss = torch.ones(rows, tokens, requires_grad=True)
        value = aggregate(loss, torch.zeros(rows, tokens), denominator=1)
        value.backward()
        assert value.item() == 0.0
        assert loss.grad.abs().sum().item() == 0.0


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo"])
def test_accumulation_over_ranks_and_micro_batches_equals_one_batch(name):
    batch = make(3, rows=8)
    total = int(batch.mask.sum())

    def gradient(rows: slice, split: int) -> torch.Tensor:
        logp = batch.logprobs.clone().requires_grad_()
        knobs = {
            "grpo": (grpo, {"num_responses": local_denominator(8, ranks_averaged=split, steps_averaged=split)}),
            "dr_grpo": (dr_grpo, {"num_responses": local_denominator(8, ranks_averaged=split, steps_averaged=split), "max_length": 7}),
            "dapo": (dapo, {"num_tokens": local_denominator(total, ranks_averaged=split, steps_averaged=split)}),
        }  # fmt: skip
        function, arguments = knobs[name]
        loss = function(logp[rows], batch.old[rows], batch.advantages[rows], batch.mask[rows], **arguments)
        loss.value.backward()
        return logp.grad

    whole = gradient(slice(0, 8), 1)
    # two ranks of two micro-batches; the backend averages over ranks and divides each loss by the steps
    parts = [gradient(slice(2 * i, 2 * i + 2), 2) for i in range(4)]
    torch.testing.assert_close(sum(parts) / (2 * 2), whole, rtol=1e-12, atol=1e-15)


def test_refusals():
    with pytest.raises(ObjectiveError, match="denominator must be above 0"):
        aggregate(LOSS, MASK, denominator=0)
    with pytest.raises(ObjectiveError, match="denominator"):
        aggregate(LOSS, MASK, denominator=torch.tensor(float("nan")))
    with pytest.raises(ObjectiveError, match=r"per_token has shape \(3, 2\), expected \(3, 3\)"):
        aggregate(LOSS[:, :2], MASK, denominator=1)
    with pytest.raises(ObjectiveError, match="lengths hold 0"):
        aggregate(LOSS, MASK, denominator=1, lengths=torch.tensor([3, 0, 0]))
    with pytest.raises(ObjectiveError, match="only 0 and 1"):
        as_mask(torch.tensor([[0.5, 1.0]]))
    with pytest.raises(ObjectiveError, match="only 0 and 1"):
        as_mask(torch.tensor([[float("nan"), 1.0]]))
    with pytest.raises(ObjectiveError, match="denominator's log-prob"):
        log_ratio(LOSS, LOSS[:1], as_mask(MASK))
    with pytest.raises(ObjectiveError, match="total > 0"):
        local_denominator(0)


def test_group_advantages_by_hand():
    rewards = torch.tensor([1.0, 4.0, 0.0, 2.0, 7.0, 3.0], dtype=torch.float64)
    group = torch.tensor([5, -1, 5, 5, -1, 9])
    centred = group_advantages(rewards, group)
    torch.testing.assert_close(centred, torch.tensor([0.0, -1.5, -1.0, 1.0, 1.5, 0.0], dtype=torch.float64))
    pair, three = torch.tensor([4.0, 7.0]).double(), torch.tensor([1.0, 0.0, 2.0]).double()
    std = group_advantages(rewards[:5], group[:5], std=True, eps=1e-4)
    torch.testing.assert_close(std[[1, 4]], (pair - pair.mean()) / (pair.std() + 1e-4), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        std[[0, 2, 3]], (three - three.mean()) / (three.std() + 1e-4), rtol=1e-12, atol=0
    )
    out = group_advantages(rewards[:5], group[:5], baseline="leave_one_out")
    assert out.tolist() == [0.0, -3.0, -1.5, 1.5, 3.0]  # 1 - (0+2)/2, 4 - 7, 0 - (1+2)/2, ...


def test_group_advantages_at_the_edges():
    assert group_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)
    nan = group_advantages(torch.tensor([1.0, float("nan"), 3.0, 5.0]), torch.tensor([0, 0, 1, 1]))
    assert nan[:2].isnan().all()
    assert nan[2:].tolist() == [-1.0, 1.0]
    for arguments in ({"std": True}, {"baseline": "leave_one_out"}):
        with pytest.raises(ObjectiveError, match="group of one"):
            group_advantages(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1]), **arguments)
    with pytest.raises(ObjectiveError, match="group has shape"):
        group_advantages(torch.tensor([1.0]), torch.tensor([0, 1]))


def test_counts_by_cells_equal_counts_by_masks_and_add_up():
    batch = make(1, rows=6)
    index = torch.arange(42).reshape(6, 7) % 3
    cells = Cells(index, ("text", "search", "sql"))
    masks = {name: index == i for i, name in enumerate(cells.names)}
    marks = {"clipped": batch.logprobs < -1.0}
    one, two = count_marks(marks, batch.mask, cells), count_marks(marks, batch.mask, masks)
    assert {k: int(v) for k, v in one["clipped"].items()} == {k: int(v) for k, v in two["clipped"].items()}
    own = [int((marks["clipped"] & batch.mask & member).sum()) for member in masks.values()]
    assert [int(one["clipped"][name]) for name in cells.names] == own
    assert sum(own) == int(one["clipped"]["all"]) > 0
    halves = [
        count_marks({"clipped": marks["clipped"][r]}, batch.mask[r], Cells(index[r], cells.names))
        for r in (slice(0, 2), slice(2, 6))
    ]
    merged = merge_counts(*halves)["clipped"]
    assert {k: int(v) for k, v in merged.items()} == {k: int(v) for k, v in one["clipped"].items()}


def test_a_number_a_slice_reaches_its_tokens():
    cells = Cells(torch.tensor([[0, 1, 2]]), ("text", "search", "sql"))
    assert per_token(cells, {"search": 2.0, "sql": 3.0}, default=5.0).tolist() == [[5.0, 2.0, 3.0]]
    post = torch.tensor([[False, True, True]])
    assert per_token({"post_tool": post}, {"post_tool": 2.0}, default=5.0).tolist() == [[5.0, 2.0, 2.0]]
    with pytest.raises(ObjectiveError, match="no slice is called serach"):
        per_token(cells, {"serach": 1.0}, default=5.0)
    with pytest.raises(ObjectiveError, match="overlaps"):
        per_token({"a": post, "b": post}, {"a": 1.0, "b": 2.0}, default=0.0)
    with pytest.raises(ObjectiveError, match="cells hold 2 to 2; names: 2"):
        Cells(torch.tensor([[2]]), ("a", "b"))
    with pytest.raises(ObjectiveError, match="integers"):
        Cells(torch.tensor([[0.0]]), ("a",))
