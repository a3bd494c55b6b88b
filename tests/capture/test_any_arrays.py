"""Columns as trainers hold them: tensors that need grad, bfloat16, ragged lists, 0/1 masks; and what an omitted one costs."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

import trimtab
from tests.support import cli
from trimtab import BatchError, token_batch

ROWS = [[-1.0, -2.0, -3.0], [-0.5, -0.25]]
MASKS = [[True, True, True], [True, True]]


def test_a_plain_torch_loop_on_bfloat16_tensors_that_need_grad_is_watched(tmp_path, caplog):
    """Issue 17.18: everything a loop has at hand is passed as it is, and every step is measured."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros((8, 12, 16), dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.1)
    with caplog.at_level(logging.WARNING, "trimtab"), trimtab.open_run(tmp_path / "run") as run:
        for step in range(30):
            ids = torch.randint(0, 16, (8, 12), generator=generator)
            logp = torch.log_softmax(logits, -1).gather(-1, ids[..., None])[..., 0]
            mask = torch.ones((8, 12), dtype=torch.int64)
            mask[:, 4:6] = 0
            run.observe(
                loss_mask=mask, logprobs=logp, rollout_logprobs=list(logp), old_logprobs=logp.double(),
                ref_logprobs=logp.detach().half(), advantages=torch.randn(8, generator=generator),
                reward=[torch.tensor(1.0, requires_grad=True)] * 7 + [torch.tensor(0.0)], token_ids=ids,
                group=torch.arange(8) // 2, entropy=-logp, tools=[["search"]] * 8,
            )  # fmt: skip
            run.flush(step, {"loss": logp.mean()})
            optimizer.zero_grad()
            (-logp.float().mean()).backward()
            optimizer.step()
    assert run.num_failures == 0
    assert not caplog.records
    found = json.loads(cli("diagnose", tmp_path / "run", "--json").stdout)
    counts = {row["slice"]: row["n_tokens"] for row in found["slices"]}
    assert (counts["text"], counts["post_tool"]) == (30 * 8 * 4, 30 * 8 * 6)
    assert found["num_failures"] == 0


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, lambda row: torch.tensor(row).bfloat16()])
def test_ragged_rows_are_padded_as_the_mask_is(make):
    """Issue 17.18: a list of rows of different lengths, of any kind."""
    batch = token_batch(MASKS, logprobs=[make(row) for row in ROWS], token_ids=[[1, 2, 3], [4, 5]])
    assert batch.lengths.tolist() == [3, 2]
    assert batch.logprobs.tolist() == [value for row in ROWS for value in row]
    assert batch.token_ids.tolist() == [1, 2, 3, 4, 5]


def test_ragged_rows_beside_a_padded_or_packed_mask():
    mask = np.array([[False, True, True, True], [False, True, True, False]])
    exists = np.array([[False, True, True, True], [False, True, True, False]])
    expected = [value for row in ROWS for value in row]
    assert token_batch(mask, exists=exists, logprobs=ROWS).logprobs.tolist() == expected
    assert token_batch([1] * 5, lengths=[3, 2], logprobs=ROWS).logprobs.tolist() == expected
    with pytest.raises(BatchError, match="logprobs has rows of 3, 2 tokens, loss_mask has rows of 2, 3"):
        token_batch(MASKS[::-1], logprobs=ROWS)


def test_masks_of_zeros_and_ones_are_masks():
    for mask in ([[1, 0, 1]], np.array([[1.0, 0.0, 1.0]]), torch.tensor([[1, 0, 1]], dtype=torch.uint8)):
        assert token_batch(mask).loss_mask.tolist() == [True, False, True]


def test_what_an_omitted_column_costs_is_logged_once(tmp_path, caplog):
    """Issue 17.18: at the first flush with tokens, for columns whose absence nobody explained."""
    ones = np.full((4, 6), -1.0)
    with caplog.at_level(logging.WARNING, "trimtab"), trimtab.open_run(tmp_path / "run") as run:
        run.flush(0, {"reward": 1.0})
        for step in (1, 2):
            run.observe(
                loss_mask=ones < 0, logprobs=ones, rollout_logprobs=ones, absent={"entropy": "not computed"}
            )
            run.flush(step, {"reward": 1.0}, absent={"advantages": "none"})
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "trimtab: columns that observe() was not given: without old_logprobs: no mismatch, no staleness; "
        "without ref_logprobs: no drift"
    ]
