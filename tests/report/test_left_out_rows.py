"""Rows of a metrics log that are left out: each is told on the first screen with its reason, and NaN in it alarms."""

from __future__ import annotations

import json
import random

import pytest
from typer.testing import CliRunner

from trimtab import cli
from trimtab.errors import MetricLogError
from trimtab.metric_logs import read_metric_log

_RNG = random.Random(0)
GOOD = [
    {"step": i, "reward": 0.5 + 0.1 * _RNG.random(), "kl": 0.01 + 0.002 * _RNG.random(), "entropy": 1 + 0.1 * _RNG.random(), "grad_norm": 1 + 0.1 * _RNG.random(), "loss": _RNG.random()}
    for i in range(120)
]  # fmt: skip


def diagnose(tmp_path, rows, name="log.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = CliRunner().invoke(cli.app, ["diagnose", str(path)])
    return done.exit_code, " ".join(done.stdout.split())


def test_a_log_that_loses_nothing_says_nothing_of_it(tmp_path):
    code, text = diagnose(tmp_path, GOOD)
    assert (code, "left out" in text) == (0, False), text


STEPS = [(10**20, "1"), ("x", "'x'"), (1.5, "1.5"), ([1], "[1]")]


@pytest.mark.parametrize(("step", "shown"), STEPS)
def test_a_row_whose_step_is_no_step_is_told_with_it(tmp_path, step, shown):
    row = {**GOOD[60], "step": step}
    code, text = diagnose(tmp_path, [*GOOD[:61], row, row, *GOOD[61:]])
    assert code == 0
    assert f"left out 2 rows whose step is not a whole number up to 2**53 ({shown}" in text


@pytest.mark.parametrize("without", [lambda row: {**row, "step": None}, lambda row: {k: v for k, v in row.items() if k != "step"}])  # fmt: skip
def test_a_row_without_a_step_is_told(tmp_path, without):
    code, text = diagnose(tmp_path, [*GOOD[:61], without(GOOD[61]), *GOOD[62:]])
    assert (code, "left out 1 row without a step" in text) == (0, True), text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("step", [10**20, "x", None, 1.5])
def test_nan_in_a_row_that_is_left_out_alarms_at_the_step_before(tmp_path, step, value):
    rows = [*GOOD[:61], {**GOOD[60], "step": step, "loss": value}, *GOOD[61:]]
    code, text = diagnose(tmp_path, rows)
    assert code == 1
    assert "step 60 nonfinite in metrics/loss" in text
    assert "1 row among them with NaN or infinity (loss): alarms at the step before" in text
    log = read_metric_log(tmp_path / "log.jsonl")
    assert (log.steps.size, log.lost_nonfinite["loss"].tolist()) == (120, [60])


@pytest.mark.parametrize("first", [True, False])
def test_nan_in_one_of_two_rows_of_a_step_alarms_in_either_order(tmp_path, first):
    bad = {**GOOD[60], "loss": float("nan")}
    code, text = diagnose(tmp_path, [*GOOD[:60], *([bad, GOOD[60]] if first else [GOOD[60], bad]), *GOOD[61:]])  # fmt: skip
    assert code == 1
    assert "step 60 nonfinite in metrics/loss" in text
    assert "left out 1 value overwritten by a later row of the same step" in text
    assert ("1 row among them with NaN or infinity (loss): alarms" in text) == first


def test_nan_before_the_first_step_alarms_at_it(tmp_path):
    code, text = diagnose(tmp_path, [{**GOOD[0], "step": "x", "kl": float("nan")}, *GOOD])
    assert (code, "step 0 nonfinite in metrics/kl" in text) == (1, True), text


def test_nan_of_a_metric_that_only_rows_without_a_step_hold_alarms(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "loss"} for row in GOOD]
    code, text = diagnose(tmp_path, [*rows[:50], {"loss": float("inf")}, *rows[50:]])
    assert (code, "step 49 nonfinite in metrics/loss" in text) == (1, True), text


def test_a_log_without_a_step_that_can_be_read_is_one_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({**row, "step": "x"}) + "\n" for row in GOOD))
    with pytest.raises(MetricLogError, match=r"no row has a step that can be read \(120 rows whose step is"):
        read_metric_log(path)


def test_many_reasons_leave_room_for_the_rest(tmp_path):
    rows = [*GOOD, {"loss": 1.0}, {"step": "x"}, [1], {"step": 3, "loss": 2.0}, {"step": 130, "loss": "much"}]
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b'{\n{"a": "\xff\xfe"}\n{"st'
    )
    shown = CliRunner().invoke(cli.app, ["diagnose", str(path)]).stdout
    assert "and for 5 more reasons (--verbose)" in shown
    assert shown.count("\n") <= 26
    full = CliRunner().invoke(cli.app, ["diagnose", str(path), "--verbose"]).stdout
    assert full.count("left out 1 ") == 8
