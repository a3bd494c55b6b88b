"""What a user gave and the run could not take is counted and shown with its reason, never dropped without a word."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch
from trimtab.report.run_view import load_view


def recorded(folder, metrics_of, steps=3, **open_with):
    with trimtab.open_run(folder, **open_with) as run:
        for step in range(steps):
            run.observe(make_batch(np.random.default_rng(step), step=step, reward=None))
            run.flush(step, metrics_of(step))
    return folder


@pytest.mark.parametrize(
    ("value", "kind"),
    [("0.5", "str"), (np.ones(3), "ndarray of shape (3,)"), ([1.0], "list of 1"), (True, "bool")],
)
def test_a_metric_that_is_not_a_number_is_shown_with_its_key_and_type(tmp_path, caplog, value, kind):
    """Issue 17.6: `metrics={"reward": "x"}` was dropped, and the diagnosis said "no metric named reward"."""
    folder = recorded(tmp_path / "run", lambda _: {"reward": value, "loss": 1.0})
    assert caplog.text.count("metric 'reward'") == 1
    assert kind in caplog.text
    result = json.loads(cli("diagnose", folder, "--json").stdout)
    assert f"metric 'reward' was given as {kind}" in result["not_observed"]["reward"]
    assert kind in result["not_observed"]["metrics/reward"]
    assert "no metric named" not in cli("diagnose", folder, "--verbose").stdout
    assert "metrics/reward" in cli("diagnose", folder).stdout


@pytest.mark.parametrize("step", [1.5, math.nan, "7", None, -1, True, np.ones(2), 2**63])
def test_a_step_that_is_not_a_whole_number_is_refused(tmp_path, caplog, step):
    """Issue 17.6: `flush(1.5)` became step 1."""
    with trimtab.open_run(tmp_path / "run") as run:
        run.observe(make_batch(np.random.default_rng(0)))
        assert run.flush(step, {"reward": 0.5}) == []
        assert run.num_failures == 1
    assert "a step is a whole number from 0" in caplog.text
    view = load_view(tmp_path / "run")
    assert view.steps == []
    assert "not recorded" in view.errors[0]["error"]
    with (
        trimtab.open_run(tmp_path / "strict", strict=True) as run,
        pytest.raises(trimtab.RunError, match="whole"),
    ):
        run.flush(step)


@pytest.mark.parametrize("step", [3, 3.0, np.int64(3), np.float32(3.0), np.array(3)])
def test_a_whole_step_of_any_type_is_taken(tmp_path, step):
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        run.flush(step)
    assert [row["step"] for row in load_view(tmp_path / "run").steps] == [3]
