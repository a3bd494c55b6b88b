"""Derived readings of preference and supervised training, through a run without tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

import trimtab
from tests.measure.episodes import on_disk
from trimtab.measure.sequences.step_aggregates import derived


def run_of(folder, rows):
    with trimtab.open_run(folder, strict=True) as run:
        for step, row in enumerate(rows):
            run.flush(step, row)
    return on_disk(folder)


def test_dpo_loss_against_its_definition(tmp_path):
    """Margins m of a batch: loss = mean of log(1 + e^-m), chance at m = 0."""
    rng = np.random.default_rng(0)
    margins = rng.normal(0.3, 1.0, (10, 64))
    rows = [
        {"loss": float(np.log1p(np.exp(-m)).mean()), "rewards/margins": float(m.mean()), "rewards/accuracies": float((m > 0).mean()),
         "logps/chosen": -20.0, "logps/rejected": -30.0}
        for m in margins
    ]  # fmt: skip
    read = run_of(tmp_path / "run", rows)
    found = {key: rs[0] for (_, key), rs in read.items()}
    expected = np.log1p(np.exp(-margins)).mean() - math.log(2)
    assert found["preference/loss_over_chance"].value == pytest.approx(expected)
    assert found["preference/margin"].value == pytest.approx(margins.mean())
    accuracy = [
        one.value for one in read["all", "aggregate/preference_accuracy"]
    ]  # the trainer's own: a reading a step
    assert accuracy == pytest.approx((margins > 0).mean(axis=1))
    assert found["aggregate/chosen_logp"].value == -20.0
    assert found["preference/margin"].n_tokens == 10


def test_a_loss_of_unknown_chance_is_not_judged(tmp_path):
    rows = [{"loss": 0.4, "rewards/accuracies": 0.5, "chance_loss": math.nan}] * 10
    found = run_of(tmp_path / "run", rows)["all", "preference/loss_over_chance"][0]
    assert found.status == "not observed"
    assert "no known value at chance" in found.reason
    rows = [{"loss": 0.4, "chance_loss": 0.5}] * 10
    found = run_of(tmp_path / "kto", rows)["all", "preference/loss_over_chance"][0]
    assert found.value == pytest.approx(-0.1)


def test_the_gap_rests_on_the_steps_that_were_evaluated(tmp_path):
    rows = [{"loss": 1.0 + 0.1 * i, **({"eval_loss": 2.0} if i in (4, 9) else {})} for i in range(20)]
    found = run_of(tmp_path / "run", rows)["all", "supervised/gap"]
    assert [r.value for r in found] == pytest.approx([2.0 - 1.45])  # the second ten steps had no evaluation


def test_margin_from_its_two_sides():
    assert derived({"chosen_reward": 0.5, "rejected_reward": -0.25}) == {"preference/margin": 0.75}
    assert derived({"reward": 1.0, "loss": 0.2}) == {}
