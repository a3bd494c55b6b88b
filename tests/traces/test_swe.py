"""SWE-agent's and mini-swe-agent's trajectories: the tools there really are, and what counts as a failure of one."""

from __future__ import annotations

import json

import pytest

from tests.traces import samples
from trimtab.traces.read import read_episodes
from trimtab.traces.table.build import tabulate

TRACEBACK = 'Traceback (most recent call last):\n  File "reproduce.py", line 1\nValueError: bad'


def _write(folder, name, value):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(value, indent=1))
    return folder / name


def _step(action, observation="", took=0.5):
    return {"action": f"{action}\n", "observation": observation, "thought": "t", "response": "r", "execution_time": took}  # fmt: skip


def _call(name, **arguments):
    return {"function": {"name": name, "arguments": json.dumps(arguments)}, "id": "toolu_1", "type": "function"}  # fmt: skip


def test_the_tool_calls_of_the_history_are_the_calls(tmp_path):
    edit = {"command": "str_replace", "path": "/a.py", "old_str": "a"}
    history = [
        {"role": "system", "content": "You fix."},
        {"role": "assistant", "content": "demo", "is_demo": True, "tool_calls": [_call("bash", command="demo")]},
        {"role": "user", "content": "Issue."},
        {"role": "assistant", "content": "t", "tool_calls": [_call("bash", command="python reproduce.py")]},
        {"role": "tool", "content": TRACEBACK, "tool_call_id": "toolu_1"},
        {"role": "assistant", "content": "t", "tool_calls": [_call("str_replace_editor", **edit)]},
    ]  # fmt: skip
    refused = "No replacement was performed, old_str `a` did not appear verbatim in /a.py."
    steps = [_step("python reproduce.py", TRACEBACK), _step("str_replace_editor str_replace /a.py --old_str a", refused, 1.5)]  # fmt: skip
    value = {
        "trajectory": steps,
        "history": history,
        "info": {"exit_status": "submitted (exit_cost)", "model_stats": {}},
    }
    (found,), _ = read_episodes([_write(tmp_path, "d__d-1.traj", value)])
    assert [t.role for t in found.turns] == ["system", "user", "assistant", "assistant"]
    assert [(c.name, c.arguments, c.result, c.error, c.latency_s) for c in found.calls] == [
        ("bash", {"command": "python reproduce.py"}, TRACEBACK, "", 0.5),  # the bug it was to show
        ("str_replace_editor", edit, refused, refused, 1.5),
    ]
    assert tabulate([found]).truncated.tolist() == [1]


@pytest.mark.parametrize(
    ("action", "observation", "name", "failed"),
    [
        ("python -m pytest", "1 failed", "bash", False),
        ("python x.py", TRACEBACK, "bash", False),
        ("foo", "bash: foo: command not found", "bash", True),
        (
            "sleep 99",
            "The command 'sleep 99' was cancelled because it took more than 30 seconds.",
            "bash",
            True,
        ),
        (
            "edit 1:2",
            "Your proposed edit has introduced new syntax error(s). Please read this.",
            "edit",
            True,
        ),
        ("open a.py", "[File: a.py]\n1:raise Error", "open", False),
    ],
)
def test_actions_without_a_history(tmp_path, action, observation, name, failed):
    value = {"trajectory": [_step(action, observation)], "info": {}}
    (found,), _ = read_episodes([_write(tmp_path, "a.traj", value)])
    (call,) = found.calls
    assert (call.name, call.arguments, bool(call.error)) == (name, {"command": action}, failed)


def test_verdicts_of_a_report_beside_the_trajectories(tmp_path):
    report = {"resolved_ids": ["a"], "unresolved_ids": ["b"], "incomplete_ids": ["c"], "schema_version": 2}
    _write(tmp_path, "results.json", report)
    paths = [_write(tmp_path / name, f"{name}.traj", samples.swe()) for name in "abcd"]
    _write(tmp_path / "d", "report.json", {"d": {"resolved": True, "patch_exists": True}})
    found, _ = read_episodes(paths)
    assert [(e.task, e.success) for e in found] == [("a", True), ("b", False), ("c", None), ("d", True)]
    alone, _ = read_episodes([_write(tmp_path / "x" / "y", "a.traj", samples.swe())])
    assert alone[0].success is None


def test_mini_swe_agent(tmp_path):
    (found,), report = read_episodes([_write(tmp_path, "d__d-1.traj.json", samples.mini())])
    assert report.formats == {str(tmp_path / "d__d-1.traj.json"): "mini-swe-agent"}
    assert (found.id, found.task, found.stop_reason, found.cost) == (
        "d__d-1",
        "d__d-1",
        "LimitsExceeded",
        0.1,
    )
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "You fix."),
        ("user", "Issue."),
        ("assistant", "THOUGHT: look"),
        ("assistant", "THOUGHT: done"),
    ]
    first, last = found.calls
    assert (first.name, first.arguments, first.error) == ("bash", {"command": "ls -la"}, "")
    assert first.result == "<returncode>1</returncode>\n<output>\nls: cannot access\n</output>"
    assert last.result == ""
    assert found.time == samples.T0 + 1.0


def test_mini_swe_agent_with_a_time_out_a_refused_format_and_tool_calls(tmp_path):
    messages = [
        {"role": "user", "content": "Issue."},
        {"role": "assistant", "content": "no block"},
        {"role": "user", "content": "Please always provide EXACTLY ONE action in triple backticks, found 0 actions."},
        {"role": "assistant", "content": "```bash\nsleep 99\n```"},
        {"role": "user", "content": "The last command <command>sleep 99</command> timed out and has been killed.\nThe output of the command was:"},
        {"role": "assistant", "content": None, "tool_calls": [_call("bash", command="ls")]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "<returncode>0</returncode>"},
        {"role": "exit", "content": "diff"},
    ]  # fmt: skip
    value = {**samples.mini(), "messages": messages}
    (found,), report = read_episodes([_write(tmp_path, "a.traj.json", value)])
    assert [t.role for t in found.turns] == ["user", "assistant", "user", "assistant", "assistant"]
    assert [(c.arguments["command"], bool(c.error)) for c in found.calls] == [
        ("sleep 99", True),
        ("ls", False),
    ]
    assert sum(report.notes.values()) == 1


@pytest.mark.parametrize("name", ["results.json", "report.json"])
@pytest.mark.parametrize("above", [False, True])
def test_a_report_that_gave_verdicts_is_no_file_of_an_unknown_format(tmp_path, name, above):
    folder = tmp_path / "runs" if above else tmp_path
    for task in ("a", "b"):
        _write(folder, f"{task}.traj", samples.swe())
    report = {"resolved_ids": ["a"], "unresolved_ids": ["b"]}
    _write(tmp_path, name, report)
    episodes, read = read_episodes([tmp_path])
    assert [e.success for e in episodes] == [True, False]
    assert read.notes == {}
    _write(tmp_path, "odd.json", {"a": 1})
    assert read_episodes([tmp_path])[1].notes == {"file of no format we know, skipped": 1}
    _write(tmp_path, "odder.json", {"a": 1})
    assert read_episodes([tmp_path])[1].notes == {"files of no format we know, skipped": 2}


def test_a_report_that_says_nothing_of_the_trajectories_is_counted(tmp_path):
    _write(tmp_path, "a.traj", samples.swe())
    _write(tmp_path, "results.json", {"resolved_ids": ["other"], "unresolved_ids": ["b"]})
    (episode,), read = read_episodes([tmp_path])
    assert episode.success is None
    assert read.notes == {"file of no format we know, skipped": 1}
