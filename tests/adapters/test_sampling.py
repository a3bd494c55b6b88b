"""Which rows the reference scores, and which transcripts become probes, whatever the micro-batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import trimtab
from trimtab.adapters.trl.probe_scorer import PROBE_KEYS, ProbeScorer
from trimtab.adapters.trl.reference import RowSampler


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 64])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
def test_the_share_holds_for_any_micro_batch_and_starts_with_a_scored_row(size, share):
    sampler = RowSampler(share, seed=0)
    picks = [sampler.pick(size) for _ in range(240)]
    assert abs(sum(p.numel() for p in picks) - share * size * 240) <= 1.0
    assert picks[0].numel() >= 1
    for pick in picks:
        assert torch.equal(pick, pick.unique())
        assert pick.numel() == 0 or (int(pick[0]) >= 0 and int(pick[-1]) < size)


def test_every_row_has_its_turn():
    sampler = RowSampler(0.25, seed=0)
    seen = np.zeros(8)
    for _ in range(400):
        seen[sampler.pick(8).numpy()] += 1
    assert seen.min() > 60  # 100 expected each, sd 8.7


def row(prompt, completion, tool):
    """One sequence as TRL's batch holds it; `tool` marks the completion's tool tokens."""
    ids = torch.tensor([completion])
    return {
        "prompt_ids": torch.tensor([prompt]),
        "prompt_mask": torch.ones(1, len(prompt), dtype=torch.long),
        "completion_ids": ids,
        "completion_mask": torch.ones_like(ids),
        "tool_mask": 1 - torch.tensor([tool]),
    }


def test_probes_are_rows_with_a_result_gathered_over_micro_batches_of_one(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        probes = ProbeScorer(run, "auto", 4)
        probes.keep_first(row([1], [2, 3], [0, 0]))
        assert not probes.rows(4)
        for _ in range(2):  # the second epoch brings the same row
            probes.keep_first(row([1, 2], [3, 4, 5], [0, 1, 0]))
        probes.keep_first(row([1], [6, 7], [1, 0]))
        assert not probes.rows(3)
        assert probes.rows(4)
        kept = probes.arrays
        assert kept["prompt_ids"].tolist() == [[1, 2], [0, 1]]
        assert kept["prompt_mask"].tolist() == [[1, 1], [0, 1]]
        assert kept["completion_ids"].tolist() == [[3, 4, 5], [6, 7, 0]]
        assert kept["completion_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
        assert kept["tool_mask"].tolist() == [[1, 0, 1], [0, 1, 1]]
        again = ProbeScorer(run, "auto", 4)
        assert all(np.array_equal(again.arrays[key], kept[key]) for key in PROBE_KEYS)
