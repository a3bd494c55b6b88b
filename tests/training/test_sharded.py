"""FSDP2 on two CPU ranks: the watch, PPO-EWMA and routing replay give, bit for bit, what whole weights give."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.adapters.tiny_trl import tiny_model
from tests.training.tiny import moe
from tests.warm import ranks_finished
from trimtab.errors import ObjectiveError
from trimtab.objectives.weights.weight_shards import exchanged

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("sharded")
    dense, experts = tiny_model(folder / "model")[0], moe(folder / "moe")
    done = ranks_finished(["-m", "tests.training.sharded", dense, experts, str(folder)], 2, ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def assert_equal(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert one.keys() == two.keys() != set()
    for name in one:
        assert torch.equal(one[name], two[name]), name


def test_sharded_training_equals_whole_and_the_watch_changes_nothing(trained: Path) -> None:
    results = torch.load(trained / "weights.pt")
    for name in ("fsdp2", "watched"):
        for what in ("weights", "average"):
            assert_equal(results["ddp"][what], results[name][what])
    weights, average = results["ddp"]["weights"], results["ddp"]["average"]
    assert max(float((weights[name] - average[name]).abs().max()) for name in average) > 1e-3
    assert_equal(results["moe.ddp"]["weights"], results["moe.fsdp2"]["weights"])
    logs = json.loads((trained / "logs.json").read_text())
    assert logs["ddp"][1]["trimtab/clipped_high_frac"] > 0  # the average is not the policy
    assert logs["moe.ddp"] == logs["moe.fsdp2"]


def test_readings_of_sharded_weights_are_those_of_whole_ones(trained: Path) -> None:
    """Drift against the copy, the size of updates and the probes, of which only one rank has any."""
    for rank in (0, 1):
        states = [
            (trained / name / "run" / f"states.r{rank}.s0.jsonl").read_bytes()
            for name in ("dense.ddp.watched", "dense.fsdp2.watched")
        ]
        assert states[0] == states[1]
        rows = (trained / "dense.fsdp2.watched" / "run" / f"steps.r{rank}.s0.jsonl").read_text().splitlines()
        for row in map(json.loads, rows):
            assert "ref_logprobs" in row["columns"]
            assert row["costs_s"]["update"] > 1e-4
            assert row["num_failures"] == 0
    assert (trained / "dense.fsdp2.watched" / "run" / "probes.r0.npz").exists()
    assert not (trained / "dense.fsdp2.watched" / "run" / "probes.r1.npz").exists()


def test_an_exchange_gives_back_what_was_there_when_scoring_fails() -> None:
    layer = torch.nn.Linear(2, 1)
    parameters, before = dict(layer.named_parameters()), layer.weight.detach().clone()
    values = {name: torch.zeros_like(one) for name, one in parameters.items()}

    def fail() -> None:
        assert not layer.weight.any()
        raise RuntimeError("scoring")

    with pytest.raises(RuntimeError, match="scoring"), exchanged(parameters, values):
        fail()
    assert torch.equal(layer.weight, before)

    class Sharded(torch.nn.Parameter):
        placements = ()

    with pytest.raises(ObjectiveError, match="pass the model"), exchanged({"p": Sharded(torch.ones(1))}, {}):
        pass
