"""Two processes train as one with the doubled batch: weights, average, learning-rate scale, what is logged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.adapters.tiny_trl import tiny_model
from tests.training.ranks import train
from tests.warm import ranks_finished

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
}  # fmt: skip


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_doubled_batch(tmp_path):
    model = tiny_model(tmp_path / "model")[0]
    train(model, tmp_path)
    done = ranks_finished(["-m", "tests.training.ranks", model, str(tmp_path)], 2, ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    first = dict(torch.load(Path(tmp_path) / "minirl.1.pt")[0])
    for objective in ("minirl", "dapo", "reinforce"):
        (one, average_one), (two, average_two) = (
            torch.load(tmp_path / f"{objective}.{world}.pt") for world in (1, 2)
        )
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-5)
        for name, value in average_one.items():
            torch.testing.assert_close(average_two[name], value, rtol=1e-3, atol=1e-5)
        logs = [json.loads((tmp_path / f"{objective}.{world}.json").read_text()) for world in (1, 2)]
        assert len(logs[0]) == 3
        for row, other in zip(*logs, strict=True):
            for logged in (row, other):  # extremes over micro-batches, which hold other rows in two processes
                if "clip_ratio/low_min" in logged:
                    assert logged.pop("clip_ratio/low_min") <= logged["clip_ratio/low_mean"] + 1e-6
                    assert logged.pop("clip_ratio/high_max") >= logged["clip_ratio/high_mean"] - 1e-6
            assert row == pytest.approx(other, rel=1e-3, abs=1e-4)
    assert any("vcpo/lr_scale" in row for row in json.loads((tmp_path / "minirl.2.json").read_text()))
    rows = json.loads((tmp_path / "reinforce.2.json").read_text())  # one group of eight over both ranks
    assert all(row["vcpo/baseline_shift"] > 1e-3 for row in rows if "vcpo/baseline_shift" in row)
    assert "vcpo/baseline_shift" in rows[0]
    ranks = [torch.load(tmp_path / f"minirl.rank{rank}.2.pt")["average"] for rank in (0, 1)]
    assert all(torch.equal(ranks[0][name], ranks[1][name]) for name in ranks[0])
    start_weights = torch.load(tmp_path / "dapo.2.pt")[0]
    assert any(not torch.equal(first[name], start_weights[name]) for name in first)
