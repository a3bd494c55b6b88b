"""A real run: SkyRL's Tinker API server on the CPU, the lab agent and its tools, watched through adapters/tinker.

`bash .ci/skyrl.sh` makes an environment with SkyRL, JAX and tinker and runs this file, some five minutes of one core: one server, a healthy
run and one whose sampler keeps old weights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("skyrl", reason="needs SkyRL: run bash .ci/skyrl.sh")
pytest.importorskip("tinker", reason="needs tinker 0.22: run bash .ci/skyrl.sh")
from reproduce.tinker_lab.loop import Plan, train
from reproduce.tinker_lab.server import serve

from trimtab.lab.model import agent_path
from trimtab.report.run_view import load_view
from trimtab.runs import RunReader

pytestmark = pytest.mark.skyrl
STEPS, STALE_FROM = 20, 10


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder and the loop's own rows of a healthy run, and of one whose sampler is not refreshed from a step on."""
    out = tmp_path_factory.mktemp("runs")
    plans = {"healthy": Plan(STEPS), "stale": Plan(STEPS, stale_from=STALE_FROM, learning_rate=3e-3)}
    with serve(agent_path(), tmp_path_factory.mktemp("server")) as url:
        return {
            name: (out / name, train(url, agent_path(), out / name, plan)) for name, plan in plans.items()
        }


def values(folder, key, name="all"):
    return np.array([reading.value for reading in load_view(folder).series(key, name)])


def test_every_step_is_observed_token_by_token(runs):
    folder, own = runs["healthy"]
    reader = RunReader(folder)
    rows = list(reader.rows("steps"))
    assert [row["step"] for row in rows] == list(range(STEPS))
    assert [row["slices"]["all"]["n_tokens"] for row in rows] == [row["tokens"] for row in own]
    assert all(row["slices"]["all"]["n_trajectories"] == 16 for row in rows)
    for row in rows:
        assert {
            "rollout_logprobs",
            "old_logprobs",
            "logprobs",
            "ref_logprobs",
            "advantages",
            "reward",
        } <= set(row["columns"])
    assert list(reader.rows("errors")) == []
    assert sum(row["tool_calls"] for row in own) == len(list(reader.rows("tools"))) > STEPS


def test_tokens_after_a_tool_have_slices_of_their_own(runs):
    folder, _ = runs["healthy"]
    rows = list(RunReader(folder).rows("steps"))
    assert all(row["slices"]["post_tool"]["n_tokens"] > 0 for row in rows)
    tools = {name for row in rows for name in row["slices"] if name.startswith("post_tool/")}
    assert {"post_tool/price", "post_tool/stock", "post_tool/owner"} <= tools
    assert all(
        row["slices"]["text"]["n_tokens"] + row["slices"]["post_tool"]["n_tokens"]
        == row["slices"]["all"]["n_tokens"]
        for row in rows
    )


def test_sampler_and_trainer_agree_to_rounding(runs):
    """The two JAX programs at the same weights; the loop's own subtraction is the independent number."""
    folder, own = runs["healthy"]
    assert max(row["abs_gap_max"] for row in own) < 1e-4
    p95 = values(folder, "step/mismatch/p95")
    assert p95.size == STEPS
    assert np.isfinite(p95).all()
    assert (p95 <= np.array([row["abs_gap_max"] for row in own]) * 1.02 + 1e-9).all()


def test_what_is_not_observed_is_named_and_nothing_else(runs):
    folder, _ = runs["healthy"]
    for row in RunReader(folder).rows("steps"):
        missing = row["not_observed"]
        assert {"mismatch", "drift", "reward"}.isdisjoint(missing)
        assert "identically zero" in missing["staleness"]
        assert "equals mismatch" in missing["total"]
        assert "forward_backward returns none" in missing["entropy"]


def test_the_verdict_is_not_blind(runs):
    folder, _ = runs["healthy"]
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", "diagnose", str(folder), "--json"],
        capture_output=True, text=True, timeout=120, env=dict(os.environ), check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["verdict"] in ("healthy", "not judged yet")


def test_it_learns_and_drifts_from_the_base_model(runs):
    folder, own = runs["healthy"]
    rewards = [row["reward"] for row in own]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5])
    metrics = [row["metrics"] for row in RunReader(folder).rows("steps")]
    assert [float(f"{row['skyrl.ai/grad_norm']:.4g}") for row in metrics] == [row["grad_norm"] for row in own]
    assert (
        values(folder, "drift/p95")[-1] > 1e-2
    )  # of the base model, which a sampling client of its own scores


def test_a_sampler_that_is_not_refreshed_moves_the_mismatch(runs):
    folder, own = runs["stale"]
    p95 = values(folder, "step/mismatch/p95")
    assert [row["sampled_with"] for row in own] == [min(step, STALE_FROM) for step in range(STEPS)]
    assert p95[: STALE_FROM + 1].max() < 1e-4
    assert p95[STALE_FROM + 1 :].min() > 1e-3
    assert any(alarm.rule == "mismatch_step_rise" for alarm in load_view(folder).alarms)
    assert not any(alarm.rule == "mismatch_step_rise" for alarm in load_view(runs["healthy"][0]).alarms)
