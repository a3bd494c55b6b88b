"""CSV exports of W&B's panels, written as its web page writes them: every cell quoted, a column of steps, `RUN - KEY` and its
`__MIN` and `__MAX` a run."""

from __future__ import annotations

import csv

import pytest

from tests.runs.metric_logs.test_consoles import diagnose
from trimtab.errors import MetricLogError
from trimtab.metric_logs import read_metric_log

RUNS = ("grpo - seed 1", "grpo - seed 2")


def panel(path, axis="Step", key="train/kl", runs=RUNS, steps=60, hidden=False):
    """KL of the first run explodes at step 40; the second ends at step 50, without trouble."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        names = [f"{run} - {name}{suffix}" for run in runs for name in ([key, "_step"] if hidden else [key]) for suffix in ("", "__MIN", "__MAX")]  # fmt: skip
        writer.writerow([axis, *names])
        for step in range(steps):
            row: list[object] = [step if axis == "Step" else step * 12]
            for i, _ in enumerate(runs):
                value = 0.01 * 1.6 ** max(0, step - 40) if i == 0 else 0.02 if step < 50 else ""
                row += [value, 0 if value else "", 99 if value else ""] + ([step] * 3 if hidden else [])
            writer.writerow(row)


def test_a_panel_of_two_runs_reads_the_fuller_and_names_the_other(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "wandb_export_2026-11-23.csv"
    panel(path)
    log = read_metric_log(path)
    assert (log.format, log.mapped, log.unmapped) == ("csv", {"kl": "train/kl"}, ())
    assert log.columns["kl"][1].tolist() == [0.01 * 1.6 ** max(0, step - 40) for step in range(60)]
    (reason,) = log.excluded
    assert (
        reason == f"other runs of the panel ({path.name}#RUN reads one; read: grpo - seed 1): grpo - seed 2"
    )
    code, screen = diagnose(path, monkeypatch, capsys)
    assert (code, "kl_surge" in screen) == (1, True)


def test_a_run_of_a_panel_can_be_named(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "panel.csv"
    panel(path)
    log = read_metric_log(f"{path}#grpo - seed 2")
    assert (log.steps.tolist(), set(log.columns["kl"][1].tolist())) == (list(range(50)), {0.02})
    assert log.source == f"{path}#grpo - seed 2"
    code, screen = diagnose(f"{path}#grpo - seed 2", monkeypatch, capsys)
    assert (code, screen.startswith("NOT JUDGED YET")) == (2, True)
    with pytest.raises(MetricLogError, match="has no run 'seed 3'; it has grpo - seed 1, grpo - seed 2"):
        read_metric_log(f"{path}#seed 3")


def test_a_panel_over_the_trainers_own_counter(tmp_path) -> None:
    path = tmp_path / "panel.csv"
    panel(path, axis="train/global_step", key="train/reward", runs=RUNS[:1], steps=3)
    assert read_metric_log(path).rows == [
        (0, {"reward": 0.01}),
        (12, {"reward": 0.01}),
        (24, {"reward": 0.01}),
    ]


def test_a_panel_over_time_takes_its_hidden_steps_or_says_so(tmp_path) -> None:
    path = tmp_path / "panel.csv"
    panel(path, axis="Relative Time (Process)", hidden=True)
    assert read_metric_log(path).steps.tolist() == list(range(60))
    panel(path, axis="Relative Time (Process)")
    with pytest.raises(MetricLogError, match="no step; export the panel with Step as its x axis"):
        read_metric_log(path)
