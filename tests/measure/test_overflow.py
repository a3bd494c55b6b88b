"""Log-ratios whose exponential no float holds: every reading is the largest value or finite, never a missing one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import trimtab
from tests.support import cli
from trimtab.measure.tokens.first_order_gap import first_order_gaps
from trimtab.report.run_view import load_view

TOKENS = 20


def run_with(folder, nats, *, steps=12, share=0.25, begins=0, rows=64):
    """A run in which `share` of the sequences have a log weight of `nats`, evenly over their tokens."""
    rng = np.random.default_rng(3)
    with trimtab.open_run(folder) as run:
        for step in range(steps):
            mu = -rng.exponential(1.0, (rows, TOKENS)) - 1.0 - nats / TOKENS
            now = mu + 0.01 * rng.normal(size=mu.shape)
            if step >= begins:
                now[: int(rows * share)] = mu[: int(rows * share)] + nats / TOKENS
            run.observe(
                logprobs=now, old_logprobs=mu + 0.001, rollout_logprobs=mu, loss_mask=np.ones(mu.shape, bool),
                advantages=rng.normal(size=rows), reward=rng.normal(size=rows),
            )  # fmt: skip
            run.flush(step, metrics={"reward": float(rng.normal())})
    return folder


def readings(folder, name="all"):
    view = load_view(folder)
    keys = {key for row in view.readings.rows for key in row["values"]}
    return {key: series[-1] for key in keys if (series := view.series(key, name))}


@pytest.mark.parametrize("nats", [5.0, 30.0, 90.0, 100.0, 500.0, 700.0])
def test_the_gap_of_a_broken_surrogate_is_read_at_its_size(tmp_path, nats):
    """Issue 17.4: a quarter of the sequences have the product e^nats, so the 95th percentile is that, not 0.004."""
    folder = run_with(tmp_path / "run", nats)
    gap = nats + math.log1p(-(TOKENS * math.expm1(nats / TOKENS) + 1) * math.exp(-nats))
    p95, mean = (readings(folder)[f"total/first_order_gap_{name}"] for name in ("p95", "mean"))
    assert math.log(p95.value) == pytest.approx(gap, abs=0.02 + 0.004 * gap)
    assert math.log(mean.value) == pytest.approx(gap + math.log(0.25), abs=0.01)
    assert p95.status == mean.status == "ok"


@pytest.mark.parametrize("nats", [100.0, 1000.0])
def test_no_exponential_of_a_sum_loses_a_row(tmp_path, nats):
    """Issue 17.4: the same of every reading made of e^x; beyond 709 nats infinite is the largest value."""
    folder = run_with(tmp_path / "run", nats, share=1 / 64)
    single = run_with(tmp_path / "single", nats * TOKENS, share=1 / 64)  # a weight of e^nats for each token
    ess, found = readings(folder), readings(single)
    assert ess["total/sequence_ess_frac"].value == pytest.approx(1 / 64, rel=0.05)
    assert ess["total/first_order_gap_mean"].n_tokens >= 64
    assert ess["total/first_order_gap_mean"].value == (
        math.inf if nats > 709 else pytest.approx(math.exp(nats) / 64, rel=0.01)
    )
    assert found["total/token_ess_frac"].value == pytest.approx(1 / 64, rel=0.05)
    assert found["weight_mass/top_trajectory_frac"].value > 0.05
    assert found["weight_mass/top_token_frac"].value > 0.3
    for key in ("kl/rollout_theta/k3", "total/second_moment", "total/chi2"):
        assert found[key].value > 1e40, key
    for r in (*ess.values(), *found.values()):
        assert r.status != "ok" or not math.isnan(r.value), r.key


def test_infinite_readings_are_stored_and_read(tmp_path):
    """Issue 17.4: inf survives the run folder, `diagnose --json` and the page."""
    folder = run_with(tmp_path / "run", 2000.0)
    assert readings(folder)["total/first_order_gap_p95"].value == math.inf
    text = cli("diagnose", folder, "--json")
    assert json.loads(text.stdout)["verdict"] != "healthy"  # twelve steps: no verdict yet
    assert text.stderr == ""
    assert cli("report", folder, "-o", tmp_path / "page.html").returncode == 0


def test_a_surrogate_that_breaks_is_an_alarm_however_far_it_breaks(tmp_path):
    """Issue 17.4: the rule on the gap fires where the gap is infinite."""
    folder = run_with(tmp_path / "run", 2000.0, steps=130, begins=90, rows=320)
    assert "first_order_breakdown" in {alarm.rule for alarm in load_view(folder).alarms}


def test_gaps_in_logarithms_equal_the_definition():
    """Issue 17.4: against exact rationals of Python's integers, over tokens from -300 to 1,000 nats."""
    rng = np.random.default_rng(0)
    for scale in (0.01, 1.0, 30.0):
        logs = scale * rng.normal(size=12)
        sequence = np.repeat([3, 9], 6)
        for one, part in zip(first_order_gaps(logs, sequence), np.split(logs, 2), strict=True):
            want = abs(math.exp(part.sum()) - 1 - np.expm1(part).sum())
            assert math.exp(one) == pytest.approx(want, rel=1e-6, abs=1e-12)
    shift = first_order_gaps(np.array([1000.0, 0.0, 500.0, 500.0, 900.0]), np.array([0, 0, 1, 1, 2]))
    assert shift[0] == -math.inf  # e^1000 x 1 - 1 - (e^1000 - 1)
    assert shift[1] == pytest.approx(1000.0, abs=1e-9)
    assert shift[2] == -math.inf  # one token
    odd = first_order_gaps(np.array([math.inf, 0.0, math.nan, 0.0, -math.inf, 0.0]), np.repeat([0, 1, 2], 2))
    assert odd[0] == math.inf
    assert math.isnan(odd[1])
    assert odd[2] == -math.inf  # 0 x 1 - 1 - (0 - 1)
