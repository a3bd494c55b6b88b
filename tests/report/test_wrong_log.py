"""`trimtab diagnose` of what is no metrics log, or of a metric it does not know: one line that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.report.test_screen import EXAMPLE
from trimtab import cli
from trimtab.errors import MetricLogError
from trimtab.report.alarms import rule_lines
from trimtab.traces.native.episode_writer import TraceWriter

CHAT = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
ROWS = {
    "messages": {"messages": CHAT, "reward": 1.0},
    "turns": {"turns": CHAT, "reward": 1.0},
    "steps": {"steps": [{"action": "ls", "observation": "a"}], "reward": 1.0},
    "tau": {"task_id": 1, "reward": 1.0, "info": {}, "traj": CHAT, "trial": 0},
    "verl": {"input": "2 + 2?", "output": "4", "score": 1.0},
}
METRICS = [{"step": step, "reward": 0.5, "kl": 0.01, "sample": CHAT[0]["content"]} for step in range(30)]


def diagnose(*words):
    done = CliRunner().invoke(cli.app, ["diagnose", *map(str, words)])
    if isinstance(done.exception, MetricLogError):  # `main` prints it and exits with 2
        return 2, str(done.exception)
    return done.exit_code, done.stdout


def write(path: Path, rows, whole=False):
    path.write_text(json.dumps(rows) if whole else "".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_an_agent_log_is_sent_to_traces_diagnose(tmp_path, name, steps, whole):
    rows = [{**ROWS[name], **({"step": i} if steps else {})} for i in range(30)]
    path = write(tmp_path / "log.json", rows, whole)
    assert diagnose(path) == (2, f"this is an agent log: trimtab traces diagnose {path}")
    assert diagnose(tmp_path) == (2, f"this is an agent log: trimtab traces diagnose {tmp_path}")


def test_a_folder_of_folders_may_be_of_agent_logs(tmp_path):
    """As `~/.claude/projects`."""
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner" / "a.jsonl", [ROWS["messages"]])
    code, text = diagnose(tmp_path)
    assert (code, text.rpartition("; ")[2]) == (
        2,
        f"agent logs are read by: trimtab traces diagnose {tmp_path}",
    )


def test_a_log_of_which_every_other_record_is_an_episode(tmp_path):
    """As AutoGen's events: requests, and the calls between them."""
    path = write(tmp_path / "log.jsonl", [ROWS["messages"], {"type": "ToolCall", "result": "ok"}] * 10)
    assert diagnose(path) == (2, f"this is an agent log: trimtab traces diagnose {path}")


def test_the_episodes_of_the_tutorial_are_an_agent_log(tmp_path):
    path = tmp_path / "episodes of a run.jsonl"
    with TraceWriter(path) as log:
        for number in range(30):
            with log.episode(f"e{number}") as episode:
                episode.message("user", "2 + 2?")
                episode.finish(reward=1.0, success=True)
    assert diagnose(path) == (2, f"this is an agent log: trimtab traces diagnose '{path}'")


def test_metrics_with_a_sample_of_an_episode_beside_them_are_judged(tmp_path):
    rows = [one for row in METRICS for one in (row, row, {"step": row["step"], "messages": CHAT})]
    assert "steps 0 to 29" in diagnose(write(tmp_path / "log.jsonl", rows))[1]
    write(tmp_path / "metrics.jsonl", METRICS)
    write(tmp_path / "log.jsonl", [ROWS["messages"]] * 30)
    assert "steps 0 to 29" in diagnose(tmp_path)[1]


def test_a_format_that_is_named_has_the_last_word(tmp_path):
    path = write(tmp_path / "log.jsonl", [{**ROWS["verl"], "step": i, "reward": 0.5} for i in range(30)])
    assert "steps 0 to 29" in diagnose(path, "--format", "jsonl")[1]


def test_a_metric_that_is_none_is_answered_with_names(tmp_path):
    path = write(tmp_path / "log.jsonl", METRICS)
    assert "; reward, kl, entropy" in diagnose(path, "--map", "foo=kl")[1]
    assert "close: entropy" in diagnose(path, "--map", "entrop=kl")[1]


def test_a_page_that_cannot_be_written_is_named_once(tmp_path):
    error = (
        CliRunner().invoke(cli.app, ["report", str(EXAMPLE), "-o", str(tmp_path / "no" / "x.html")]).exception
    )
    assert str(error) == f"{tmp_path / 'no' / 'x.html'} cannot be written: No such file or directory"


def test_map_is_advised_only_where_a_key_may_be_it(tmp_path):
    rows = [{"step": step, "reward": 0.5} for step in range(5)]
    assert diagnose(write(tmp_path / "log.jsonl", rows))[1].rstrip().endswith("--verbose")
    rows = [{**row, "my/kl_to_base": 0.1} for row in rows]
    assert diagnose(write(tmp_path / "log.jsonl", rows))[1].rstrip().endswith("--map kl=KEY")


def test_the_advice_on_a_metric_that_stopped_fits_a_metrics_log(tmp_path):
    rows = [row if row["step"] < 15 else {"step": row["step"], "kl": 0.01} for row in METRICS]
    code, out = diagnose(write(tmp_path / "log.jsonl", rows))
    assert (code, "do: Check what logs it (the logger's settings" in out) == (1, True), out


def test_one_rule_that_waits_is_spoken_of_in_the_singular():
    lines = rule_lines({"judged": ["kl_high"], "pending": {"kl_break": 1}})
    assert lines[1] == "1 still collects its baseline: kl_break (1 value)"
