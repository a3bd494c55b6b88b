"""Logs without a step column: what a trainer prints on a console, tables with a row a step, tables of runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trimtab.errors import MetricLogError
from trimtab.metric_logs import read_metric_log

_BARS = "\n".join(
    f" {5 * n}%|##| {5 * n}/100 [00:10<05:00, 3.1s/it]      "
    f"{{'loss': {n / 10}, 'grad_norm': {n}.5, 'learning_rate': 1e-06, 'reward': nan, 'kl': 0.01}}"
    for n in range(1, 5)
)
_BANNER = "[run] base = some/Model-1B\nINFO 05-06 init: config={'a': 1, 'b': {'c': 2}}\n"


def test_a_console_log_gives_its_rows_at_the_steps_of_the_progress_bar(tmp_path) -> None:
    path = tmp_path / "training.log"
    rows = _BARS + "\n{'train_runtime': 12.5, 'train_loss': 0.2, 'epoch': 1.0}\n"
    path.write_text(_BANNER + rows)
    log = read_metric_log(path)
    assert (log.format, log.framework) == ("console", "trl")
    assert log.steps.tolist() == [5, 10, 15, 20]
    assert log.columns["grad_norm"][1].tolist() == [1.5, 2.5, 3.5, 4.5]
    assert np.isnan(log.columns["reward"][1]).tolist() == [True] * 4  # as Python prints it, no literal
    assert log.excluded == {"summaries of the run": 1}


def test_a_console_row_that_is_no_python_value_is_counted(tmp_path) -> None:
    path = tmp_path / "training.log"
    path.write_text(_BARS.replace("nan", "tensor(1)"))
    with pytest.raises(MetricLogError, match=r"no row to read .4 malformed lines."):
        read_metric_log(path)


def test_a_table_with_a_row_a_step_is_numbered_by_row_and_says_so(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("reward,kl\n" + "".join(f"{n / 20},0.{n:02}\n" for n in range(12)))
    log = read_metric_log(path)
    assert log.steps.tolist() == list(range(1, 13))
    assert "no row has a step: steps are the numbers of the rows, 1 the first" in log.notes


@pytest.mark.parametrize(
    ("header", "why"),
    [("run_name,final_reward,kl", "its rows are summaries of runs"), ("reward,kl,entropy", "is needed")],
)
def test_a_table_of_runs_and_a_short_table_are_no_steps(tmp_path, header, why) -> None:
    path = tmp_path / "log.csv"
    path.write_text(header + "\n" + "0.5,0.25,1\n" * (12 if "run" in header else 3))
    with pytest.raises(MetricLogError, match=why):
        read_metric_log(path)


def test_tinkers_loop_keys_are_tinkers_and_their_parts_are_parts(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = {"optim/lr": 1e-5, "time/total": 3.0, "reward/mean": 0.5, "reward/f": 0.1, "reward/g": 0.4,
           "reward/g_minus_f": 0.3, "policy/entropy": 2.0}  # fmt: skip
    path.write_text("".join(json.dumps({"step": n, **row}) + "\n" for n in range(3)))
    log = read_metric_log(path)
    assert log.framework == "tinker"
    assert log.mapped == {
        "reward": "reward/mean", "entropy": "policy/entropy", "learning_rate": "optim/lr",
        "step_s": "time/total", "reward_part:f": "reward/f", "reward_part:g": "reward/g",
    }  # fmt: skip
