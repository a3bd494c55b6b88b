"""What `flush` does with arguments that are none, a step it has written, and a step no batch of which could be taken."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch
from trimtab.report.run_view import load_view


def shown(folder):
    return json.loads(cli("diagnose", folder, "--json").stdout)


class Malicious:
    def __bool__(self):
        raise ValueError("no truth")

    @property
    def shape(self):
        raise RuntimeError("no shape")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "metrics", [np.array([1, 2]), np.ones(1), [1.0], "reward", 5, {"reward"}, Malicious(), np.float64(1)]
)
def test_metrics_that_are_no_dictionary_are_one_line_and_cost_no_step(tmp_path, caplog, strict, metrics):
    """Issue 17.6: an array raised ValueError into the loop, and its step's tokens were lost with it."""
    with trimtab.open_run(tmp_path / "run", strict=strict) as run:
        for step in range(3):
            run.observe(make_batch(np.random.default_rng(step), step=step, reward=None))
            run.flush(step, metrics)
        assert run.num_failures == 0
    assert caplog.text.count("flush(metrics=...)") == 1
    result = shown(tmp_path / "run")
    assert "not as names with numbers: not recorded" in result["not_observed"]["metrics"]
    assert "metrics were given as" in result["not_observed"]["reward"]
    assert result["slices"][0]["n_tokens"] == 3 * 32 * 80
    assert "metrics: given as" in cli("diagnose", tmp_path / "run").stdout


class NoNumber:
    def item(self):
        raise AttributeError("of no number")


@pytest.mark.parametrize("value", [NoNumber(), Malicious(), 1j, {"a": 1}])
def test_a_value_that_breaks_when_read_is_no_number(tmp_path, value):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.flush(0, {"reward": value, "loss": 1.0})
    assert "not as one number" in shown(tmp_path / "run")["not_observed"]["metrics/reward"]
    assert load_view(tmp_path / "run").steps[0]["metrics"] == {"loss": 1.0}


def test_reasons_that_are_no_dictionary_are_said(tmp_path, caplog):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.flush(0, {"reward": 1.0}, absent=["drift"])
    assert "flush(absent=...) was given as list of 1" in caplog.text
    assert "absent" in shown(tmp_path / "run")["not_observed"]


def test_a_second_flush_of_each_step_is_said_once_and_blinds_nothing(tmp_path, caplog):
    """Each second flush was a failure of the monitor, and the run BLIND: "the monitor failed 30 times"."""
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(40):
            run.observe(make_batch(rng, sequences=64, step=step))
            run.flush(step, {"reward": 0.5 + 0.01 * rng.normal()})
            assert run.flush(step, {"eval_reward": 1.0}) == []
        assert run.num_failures == 0
    assert caplog.text.count("Call flush once a step") == 1
    result = shown(tmp_path / "run")
    assert (result["verdict"], result["num_steps"]) == ("healthy", 40)
    assert result["not_observed"]["second flush"].startswith("in 39 of 40 steps: flush was called again")


@pytest.mark.parametrize("next_step", [lambda _: 39, lambda step: step - 40])
def test_steps_that_do_not_increase_are_blind_and_named(tmp_path, caplog, next_step):
    """A counter that stands still or starts over: nothing more is recorded, which must not look well."""
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(60):
            run.observe(make_batch(rng, sequences=64, step=step))
            run.flush(step if step < 40 else next_step(step), {"reward": 0.5 + 0.01 * rng.normal()})
        assert run.num_failures == 20
    assert caplog.text.count("steps must increase") == 1
    result = shown(tmp_path / "run")
    assert (result["verdict"], result["num_steps"]) == ("blind", 40)
    assert "is written: steps must increase" in result["last_failure"]
    assert "call run.begin(" in result["last_failure"]


def test_a_step_that_stands_still_without_batches_is_blind_too(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        for _ in range(5):
            run.flush(0, {"reward": 1.0})
    assert shown(tmp_path / "run")["verdict"] == "blind"


BATCH = ("drift", "mismatch", "total", "staleness", "entropy", "routing", "distinguish")


def test_the_list_is_whole_where_every_observe_failed(tmp_path):
    """Drift, mismatch, total, staleness and entropy were not among what was not observed."""
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(40):
            run.observe(loss_mask="x")
            run.flush(step, {"reward": 1.0})
    result = shown(tmp_path / "run")
    assert set(BATCH) <= result["not_observed"].keys()
    assert "no batch could be taken: BatchError: loss_mask" in result["not_observed"]["drift"]
    assert "drift: growth of the policy-reference gap" in cli("diagnose", tmp_path / "run").stdout


def test_steps_without_a_batch_are_counted_among_those_not_observed(tmp_path):
    rng = np.random.default_rng(0)
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(40):
            run.observe(loss_mask="x") if 20 <= step < 23 else run.observe(make_batch(rng, 64, step=step))
            run.flush(step, {"reward": 0.5 + 0.01 * rng.normal()})
    result = shown(tmp_path / "run")
    assert result["verdict"] == "healthy"
    assert "drift in 3 of 40 steps" in result["reason"]


def test_a_run_without_any_batch_says_so_once(tmp_path):
    with trimtab.open_run(tmp_path / "run") as run:
        for step in range(3):
            run.flush(step, {"reward": 1.0})
    result = shown(tmp_path / "run")
    assert result["headline"].count("no batch was observed") == 1
    assert set(BATCH) <= result["not_observed"].keys()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([12], "at step 12: "),
        ([12, 13, 14], "from step 12 to 14: "),
        ([12, 15, 20], "at 3 of the 9 steps from 12 to 20: "),
        ([37, 38, 39], "since step 37: "),
    ],
)
def test_the_steps_of_nan_are_those_that_hold_it(tmp_path, bad, words):
    """NaN at step 12 alone was "from step 12 to 23": the alarm clears after ten steps without."""
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(40):
            run.flush(step, {"reward": 0.5, "loss": math.nan if step in bad else 1.0})
    log = tmp_path / "log.jsonl"
    rows = [{"step": s, "reward": 0.5, "loss": math.nan if s in bad else 1.0} for s in range(40)]
    log.write_text("\n".join(map(json.dumps, rows)))
    for path in (tmp_path / "run", log):
        assert f"UNHEALTHY {words}NaN or infinity" in " ".join(cli("diagnose", path).stdout.split())
