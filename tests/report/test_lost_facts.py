"""What a user gave and the run could not take is counted and shown with its reason, never dropped without a word."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import trimtab
from tests.support import cli, make_batch
from trimtab.report.html.run_page import render_html
from trimtab.report.html.run_payload import build_payload
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


def sampled_until(folder, last, steps):
    """A run whose sampler gives log-probabilities up to step `last`."""
    with trimtab.open_run(folder, strict=True) as run:
        for step in range(steps):
            rng = np.random.default_rng(step)
            run.observe(make_batch(rng, sequences=64, step=step, mismatch=0.01 if step <= last else 0.0))
            run.flush(step, {"reward": 0.5 + 0.01 * rng.normal(), "grad_norm": 1.0 + 0.05 * rng.normal()})
    return folder


def test_what_some_steps_lack_is_shown_with_their_number(tmp_path):
    """Issue 17.5: what was not observed was hidden unless every step listed it."""
    folder = sampled_until(tmp_path / "run", last=9, steps=40)
    result = json.loads(cli("diagnose", folder, "--json").stdout)
    assert result["not_observed"]["total"].startswith("in 30 of 40 steps: no rollout_logprobs")
    assert "total in 30 of 40 steps" in result["reason"]
    assert "total in 30 of 40 steps: a gap" in cli("diagnose", folder).stdout


def test_every_step_lists_what_it_lacks(tmp_path):
    """Issue 17.5: the steps before the first measurement listed nothing, so that "never" was never true."""
    with trimtab.open_run(tmp_path / "run", strict=True) as run:
        for step in range(7):  # small steps, measured in blocks of five
            run.observe(make_batch(np.random.default_rng(step), sequences=2, step=step))
            run.flush(step, {"reward": 0.5})
    view = load_view(tmp_path / "run")
    assert all("no rollout_logprobs" in row["not_observed"]["total"] for row in view.steps)
    assert "routing" in view.steps[0]["not_observed"]
    assert view.unobserved.never["total"].startswith("no rollout_logprobs")
    assert "not observed: mismatch, total" in view.verdict.reason


def test_rows_that_list_nothing_lack_what_their_columns_lack(tmp_path):
    """Issue 17.5: folders of 0.1 have such rows at their start and after failures."""
    folder = sampled_until(tmp_path / "run", last=-1, steps=12)
    path = folder / "steps.r0.s0.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[:4]:
        row["not_observed"] = {}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "mismatch" in load_view(folder).unobserved.never


def test_secrets_of_a_configuration_are_not_on_the_page(tmp_path):
    """The page is what people send around."""
    config = {
        "wandb_api_key": "abc123",
        "a": {"password": "hunter2"},
        "url": "https://u:pass9@host/x",
        "lr": 1e-6,
    }
    with trimtab.open_run(tmp_path / "run", config=config) as run:
        run.flush(0, {"reward": 0.5})
    page = render_html(build_payload([load_view(tmp_path / "run")]))
    assert not [secret for secret in ("abc123", "hunter2", "pass9") if secret in page]
    assert "https://***@host/x" in page
    assert "1e-06" in page
