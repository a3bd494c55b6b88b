"""No false health of agent logs: nothing read, nothing solved, and tools that fail by the task alone."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tests.traces.make import write_lines
from trimtab import cli


def _diagnose(*arguments: object):
    return CliRunner().invoke(cli.app, ["traces", "diagnose", *map(str, arguments)])


def _call(failed: bool) -> list[dict[str, object]]:
    call = {"id": "c", "type": "function", "function": {"name": "lookup", "arguments": '{"q": 1}'}}
    return [
        {"role": "user", "content": "Do it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Error: no such row" if failed else "42"},
        {"role": "assistant", "content": "Done."},
    ]


def test_a_log_of_which_no_message_was_read_is_blind(tmp_path):
    """Issue 17.1: every message is left out, so no check has seen anything."""
    rows = [{"id": str(i), "messages": [1, 2], "reward": float(i % 2)} for i in range(40)]
    log = write_lines(tmp_path / "log.jsonl", rows)
    ran = _diagnose(log, "--format", "messages")
    assert ran.exit_code == 2, ran.output
    assert ran.stdout.startswith("BLIND: no message was read of 40 of 40 episodes")


def test_a_solve_rate_of_zero_is_a_warning_and_stands_in_the_sentence_and_the_head(tmp_path):
    """Issue 17.1: 0 of 200 solved is not healthy, whatever else fires."""
    rows = [
        {"id": str(i), "task_id": str(i % 50), "messages": _call(False), "success": False} for i in range(200)
    ]
    log, page = write_lines(tmp_path / "log.jsonl", rows), tmp_path / "page.html"
    ran = _diagnose(log, "--html", page)
    assert ran.exit_code == 1, ran.output
    sentence = json.loads(_diagnose(log, "--json").stdout)["headline"]
    assert "hardly any episode solves its task" in sentence
    assert "0 of 200" in sentence
    head = page.read_text(encoding="utf-8").partition('id="findings"')[0]
    assert "0 of 200" in head
    rows = [{**row, "reward": 0.5} for row in rows]  # graver: every reward is the same
    sentence = json.loads(_diagnose(write_lines(log, rows), "--json").stdout)["headline"]
    assert "every episode has the same reward" in sentence
    assert "Hardly any task is solved: 0 of 200" in sentence


def test_failures_that_the_task_determines_are_no_burst_and_no_crash(tmp_path):
    """Issue 17.2: deterministic tools at temperature 0 fail on some tasks always, and on others never."""
    rows = [
        {"id": str(i), "task_id": str(i % 20), "messages": _call(i % 20 < 5), "reward": float(i % 3 == 0)}
        for i in range(200)
    ]
    ran = _diagnose(write_lines(tmp_path / "log.jsonl", rows), "--json")
    assert ran.exit_code in (0, 1), ran.output
    by_key = {(row["key"], row["slice"]): row for row in json.loads(ran.stdout)["readings"]}
    burst = by_key["traces/burst_excess", "tool/lookup"]
    assert burst["value"] == 0
    assert "whenever it is tried" in burst["numbers"]
