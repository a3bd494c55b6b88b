"""Two processes under torchrun train as one with the doubled batch: weights, average, learning-rate scale, what is logged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")
import torch

from tests.adapters.tiny_trl import tiny_model

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
from tests.training.tiny import fixed_rollout, ours

model, work = sys.argv[1], Path(sys.argv[2])
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
inner = fixed_rollout(tools=True, path=model)

def rollout(prompts, trainer):  # completions depend on the place in the global batch
    whole = prompts * world
    out = inner(whole, trainer)
    return {key: value[rank * len(prompts):(rank + 1) * len(prompts)] for key, value in out.items()}

def reward(completions, completion_ids, **_):
    return [float(sum(ids) % 7) for ids in completion_ids]

for objective in ("minirl", "dapo"):
    own = {"ewma_centre_of_mass": 2.0, "lr_by_ess": True} if objective == "minirl" else {"entropy_keep": 0.3}  # first tokens share a prompt and tie near 0.6
    extra = {"ddp_backend": "gloo"} if world > 1 else {}
    trainer = ours(
        model, work, rollout=rollout, reward_funcs=reward, objective=objective, per_device_train_batch_size=4 // world,
        num_generations=8, gradient_accumulation_steps=2, num_iterations=2, max_steps=3, save_strategy="steps", save_steps=3,
        **own, **extra,
    )
    trainer.train()
    assert trainer.accelerator.num_processes == world
    if rank == 0:
        keys = [k for k in trainer.state.log_history[0] if k.startswith(("trimtab", "entropy", "vcpo", "clip", "selected"))]
        logged = [{k: row[k] for k in keys if k in row} for row in trainer.state.log_history[:3]]
        average = trainer.average.average if trainer.average else {}
        state = {k: v for k, v in trainer.model.state_dict().items()}
        torch.save((state, average), work / f"{objective}.{world}.pt")
        (work / f"{objective}.{world}.json").write_text(json.dumps(logged))
    torch.save(trainer.average.state_dict() if trainer.average else {}, work / f"{objective}.rank{rank}.{world}.pt")
"""
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
}  # fmt: skip


def start(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_doubled_batch(tmp_path):
    model = tiny_model(tmp_path / "model")[0]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    start([sys.executable, str(script), model, str(tmp_path)])
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    start([sys.executable, *launch, str(script), model, str(tmp_path)])
    first = dict(torch.load(Path(tmp_path) / "minirl.1.pt")[0])
    for objective in ("minirl", "dapo"):
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
            assert row == pytest.approx(other, rel=1e-3, abs=1e-4)
    assert any("vcpo/lr_scale" in row for row in json.loads((tmp_path / "minirl.2.json").read_text()))
    ranks = [torch.load(tmp_path / f"minirl.rank{rank}.2.pt")["average"] for rank in (0, 1)]
    assert all(torch.equal(ranks[0][name], ranks[1][name]) for name in ranks[0])
    start_weights = torch.load(tmp_path / "dapo.2.pt")[0]
    assert any(not torch.equal(first[name], start_weights[name]) for name in first)
