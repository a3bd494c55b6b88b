"""The example scripts and the demo run as a user would run them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the trl extra")

from tests.support import running
from tests.warm import WarmProcess
from trimtab.report.run_view import load_view

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(cwd: Path, *command: str) -> str:
    with running(command, 280, WarmProcess, cwd=cwd, env=ENVIRONMENT) as child:
        out, error = child.communicate()
    assert child.returncode == 0, error[-3000:]
    return out


def test_torch_loop(tmp_path):
    run(tmp_path, sys.executable, str(ROOT / "examples" / "torch_loop.py"), "--steps", "6")
    view = load_view(tmp_path / "runs" / "torch_loop")
    assert [row["step"] for row in view.steps] == list(range(6))
    assert not view.errors
    assert {"text", "post_tool", "post_tool/price"} <= set(view.slices)
    mismatch = {r.slice: r.value for r in view.readings if r.key == "total/p99"}
    assert mismatch
    assert mismatch["all"] < 1e-4  # the sampler is the trainer's own engine


def test_torch_loop_is_short():
    assert len((ROOT / "examples" / "torch_loop.py").read_text().splitlines()) < 80


def test_trl_environment(tmp_path):
    run(tmp_path, sys.executable, str(ROOT / "examples" / "trl_environment.py"))
    view = load_view(tmp_path / "runs" / "trl_environment")
    assert [row["step"] for row in view.steps] == [1, 2, 3]
    assert not view.errors
    assert list(view.readings) == []
    assert view.verdict.word == "not judged yet"
    assert "ref_logprobs" in view.steps[-1]["columns"]


def test_slow_rank(tmp_path):
    run(tmp_path, sys.executable, str(ROOT / "examples" / "slow_rank.py"), "runs/slow", "20")
    view = load_view(tmp_path / "runs" / "slow")
    assert view.reader.ranks == [0, 1, 2, 3]
    summary = view.machine.summary()
    assert set(summary["phases"]) == {"rollout", "reward", "forward", "backward", "optimizer", "sync"}
    assert all(row["median_s"]["rollout"] >= 0.02 for row in summary["ranks"])
    assert not view.errors


def test_minirl(tmp_path):
    lines = run(tmp_path, sys.executable, str(ROOT / "examples" / "minirl.py")).splitlines()
    rows = [line.split() for line in lines if "k3_mean=" in line]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    for row in rows:
        found = {name: float(value) for name, value in (part.split("=") for part in row[1:])}
        assert 0 < found["trimtab/mismatch/k3_mean"] < 0.05  # fp8 weights sampled, float32 weights train
        assert 0 < found["routing/changed_frac"] < 0.5
        assert 0 <= found["trimtab/correction/dropped_frac"] < 1


def test_demo(tmp_path):
    out = run(
        tmp_path,
        sys.executable,
        "-m",
        "trimtab.training.demo",
        "--steps",
        "6",
        "--fault-step",
        "3",
        "--out",
        str(tmp_path / "demo"),
    )
    report = Path(out.split("Report: ")[1].strip())
    assert report.stat().st_size > 100_000
    payload = (
        report.read_text().split('<script type="application/json"')[1].split(">", 1)[1].split("</script>")[0]
    )
    assert [r["name"] for r in json.loads(payload)["runs"]] == ["healthy", "stale", "guarded"]
    assert "NOT JUDGED YET" in out
    assert "stale: Rollouts grow up to 8 updates old from step 3 on." in out
    views = {name: load_view(report.parent / name) for name in ("healthy", "stale")}
    assert not any(view.errors for view in views.values())
    rewards = {name: [row["metrics"]["reward"] for row in view.steps] for name, view in views.items()}
    assert rewards["healthy"][:2] == rewards["stale"][:2]
    assert rewards["healthy"][2:] != rewards["stale"][2:]
