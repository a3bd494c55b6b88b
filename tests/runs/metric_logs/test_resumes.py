"""A log that was resumed or restarted counts for its last attempt; late rows supersede nothing."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab import cli
from trimtab.metric_logs import read_metric_log

EASY = "reward-hacking-entropy/rl-leetcode__Qwen__Qwen3-4B-Instruct-2507__Easy.jsonl"
REAL = Path(__file__).parents[4] / "shared" / "data" / "real-logs" / EASY


def row(step, reward, seed=0):
    rng = random.Random(f"{step} {reward} {seed}")
    return {
        "step": step, "reward": rng.gauss(reward, 0.02), "kl": 0.01 * rng.lognormvariate(0, 0.1), "entropy": rng.gauss(1, 0.02),
        "grad_norm": rng.lognormvariate(0, 0.1),
    }  # fmt: skip


COLLAPSED = [row(step, 0.8 if step < 100 else 0.1) for step in range(120)]


def write(folder, rows, name="log.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def diagnose(path):
    done = CliRunner().invoke(cli.app, ["diagnose", str(path)])
    return done.exit_code, " ".join(done.stdout.split())


def test_a_collapse_that_a_resume_undid_is_not_current(tmp_path):
    code, text = diagnose(write(tmp_path, [*COLLAPSED, *(row(step, 0.8, 1) for step in range(80, 98))]))
    assert (code, "critical" in text, "steps 0 to 97, 98 rows" in text) == (0, False, True), text
    assert "left out 40 rows superseded: the log goes on from step 80 again (a resume or a restart)" in text


def test_a_restart_is_judged_without_the_attempt_before(tmp_path):
    first, second = (row(step, 0.1) for step in range(150)), (row(step, 0.8) for step in range(100))
    code, text = diagnose(write(tmp_path, [*first, *second]))
    assert (code, "steps 0 to 99, 100 rows" in text, "collapse" in text) == (0, True, False), text
    assert "left out 150 rows superseded: the log goes on from step 0 again" in text


def test_of_several_resumes_the_last_attempt_stands(tmp_path):
    steps = [*range(60), *range(40, 50), *range(20, 45), *range(30, 70), 33, 34, 35]
    log = read_metric_log(write(tmp_path, [{"step": s, "reward": i} for i, s in enumerate(steps)]))
    assert log.steps.tolist() == list(range(36))
    (reason,) = log.excluded
    assert "goes on from steps 40, 20, 30 and 1 more again" in reason
    assert log.excluded[reason] == len(steps) - 36


def test_a_csv_whose_resume_logs_more_seldom(tmp_path):
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["step", "reward"], *([s, 0.1] for s in range(100)), *([s, 0.9] for s in range(50, 90, 10))])  # fmt: skip
    log = read_metric_log(tmp_path / "log.csv")
    assert log.steps.tolist() == [*range(50), 50, 60, 70, 80]


CALM = [row(step, 0.8) for step in range(60)]
LATE = {
    "one row at the end": [*CALM, row(30, 0.8, 1)],
    "rows two at a time": [CALM[i ^ 1] for i in range(60)],
    "the rows of another writer, of its own steps": [*CALM[::2], *CALM[1::2]],
    "a writer that lags by one row": [one for a, b in zip(CALM[1:], CALM, strict=False) for one in (a, b)],
    "evaluations at the end": [*CALM, *({"step": s, "eval_reward": 0.5} for s in range(0, 60, 10))],
    "evaluations that lag": [e for r in CALM for e in ((r, {"step": max(0, r["step"] - 9), "eval_reward": 0.5}) if r["step"] % 10 == 9 else (r,))],
    "a writer of other metrics": [*({k: r[k] for k in ("step", "reward")} for r in CALM), *({k: r[k] for k in ("step", "kl", "entropy")} for r in CALM)],
    "one metric a row again": [*CALM, *({"step": s, "kl": 0.01} for s in range(20, 40))],
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_late_rows_supersede_nothing(tmp_path, name):
    log = read_metric_log(write(tmp_path, LATE[name]))
    assert not [reason for reason in log.excluded if "superseded" in reason]
    assert log.steps.tolist() == list(range(60))
    assert log.columns["reward"][0].size == 60


def test_nan_that_a_resume_left_behind_alarms_at_the_step_before(tmp_path):
    bad = [{**one, "kl": float("nan")} if one["step"] in (90, 110) else one for one in COLLAPSED]
    path = write(tmp_path, [*bad, *(row(step, 0.8, 1) for step in range(80, 98))])
    code, text = diagnose(path)
    assert (code, "step 79 nonfinite in metrics/kl, cleared" in text) == (1, True), text
    assert "left out 2 rows among them with NaN or infinity (kl): alarms at the step before" in text


@pytest.mark.parametrize("store", [True, False])
def test_an_mlflow_run_that_was_resumed(tmp_path, store):
    steps = [*range(30), *range(20, 25)]
    logged = [(key, now, step) for now, step in enumerate(steps) for key in ("reward", "kl")]
    if store:
        with closing(sqlite3.connect(tmp_path / "mlflow.db")) as db:
            db.execute(
                "create table metrics (key text, value real, timestamp int, run_uuid text, step int, is_nan int)"
            )
            db.execute("create table runs (run_uuid text, name text, start_time int)")
            db.executemany("insert into metrics values (?, 0.5, ?, 'a', ?, 0)", logged)
            db.commit()
    else:
        (tmp_path / "metrics").mkdir()
        for name in ("reward", "kl"):
            (tmp_path / "metrics" / name).write_text(
                "".join(f"{now} 0.5 {step}\n" for key, now, step in logged if key == name)
            )
    log = read_metric_log(tmp_path)
    assert (log.format, log.steps.tolist(), list(log.excluded.values())) == ("mlflow", list(range(25)), [10])
    assert {index.size for index, _ in log.columns.values()} == {25}


def test_a_real_log_that_was_restarted_twice():
    if not REAL.exists():
        pytest.skip("the shared data is not here: ../shared/data/real-logs")
    log = read_metric_log(REAL)
    assert log.steps.tolist() == [0, 1, 2, 3, 4]
    assert log.excluded["rows superseded: the log goes on from step 0 again (a resume or a restart)"] == 10
