"""The runs that judge the advice on checkpoints: training is not changed by snapshots, and regrets are what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains the lab's agent")

from benchmarks.snapshots import STORE
from reproduce.archives import unpacked
from reproduce.collapse_bank.loop import Loop
from reproduce.collapse_bank.regimes import HEALTHY
from reproduce.collapse_bank.training import start_weights
from reproduce.snapshot_bank import training
from reproduce.snapshot_bank.judging import PEERS, Judged, figures_of, judge, run_folders, table_of
from reproduce.snapshot_bank.recording import read_mark
from reproduce.snapshot_bank.training import JUDGING, TUNING

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "checkpoint-advice.md"


def test_a_snapshot_does_not_change_training(monkeypatch):
    monkeypatch.setattr(training, "HELD_OUT_BATCHES", 1)
    monkeypatch.setattr(training, "HELD_OUT_ROWS", 8)
    with_one, without = (Loop(start_weights(), HEALTHY, 3) for _ in range(2))
    stored = training.snapshot(with_one)
    assert len(stored["answers"]) == training.PROMPTS
    for loop in (with_one, without):
        loop.step()
    assert all((with_one.weights[name] == without.weights[name]).all() for name in without.weights)


def test_regret_is_the_best_held_out_score_less_that_of_the_pick():
    folder = next(path for path in run_folders(unpacked(STORE)) if "proxy" in path.name)
    run = judge(folder)
    held_out = {step: row["mean"] for step, row in read_mark(folder)["held_out"].items()}
    assert set(run.regret) == set(PEERS)
    for name, step in run.picks.items():
        assert run.regret[name] == pytest.approx(max(held_out.values()) - held_out[step])
    assert run.regret["random"] == pytest.approx(max(held_out.values()) - np.mean(list(held_out.values())))
    assert run.picks["last"] == max(held_out)


def test_figures_are_of_the_judging_seeds_alone():
    def made(seed, regret):
        return Judged("healthy", seed, {}, {name: regret + 0.1 * (name != "advice") for name in PEERS})

    runs = [made(TUNING[0], 9.0), made(JUDGING[0], 0.02), made(JUDGING[1], 0.04)]
    figures = figures_of(runs)
    assert figures["checkpoint_pick_regret"] == pytest.approx(0.03)
    assert figures["checkpoint_pick_regret_last"] == pytest.approx(0.13)
    assert figures["checkpoint_pick_gain_low"] == pytest.approx(0.1)
    assert figures["checkpoint_pick_runs"] == 2
    assert "| all | 2 | 0.030 | 0.130 |" in table_of(runs, "judging")[-1]
