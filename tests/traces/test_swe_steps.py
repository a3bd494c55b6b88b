"""SWE-agent 1.1: a step that was not run is in the trajectory alone, and the calls of the others stay their own."""

from __future__ import annotations

import json

import pytest

from trimtab.traces.read import read_episodes
from trimtab.traces.readers.swe_agent import messages_of_steps


def step(response, action="", observation=""):
    return {"action": action, "observation": observation, "response": response, "thought": "", "execution_time": 0.1}  # fmt: skip


def said(content, name, **arguments):
    call = {"id": f"id_{content}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}  # fmt: skip
    return {"role": "assistant", "content": content, "action": name, "tool_calls": [call], "message_type": "action"}  # fmt: skip


ASKED = {"role": "user", "content": "Issue.", "message_type": "observation"}


def read(tmp_path, value, name="d__d-1.traj"):
    (tmp_path / name).write_text(json.dumps(value, indent=1))
    return read_episodes([tmp_path / name])


def test_a_step_that_was_asked_again_does_not_shift_the_calls(tmp_path):
    steps = [
        step("look", "ls", "a.py"),
        step("no call in this"),
        step("vim", "vim a.py"),
        step("open", "open a.py", "text"),
        step("submit", "submit", "diff"),
    ]
    history = [ASKED, said("look", "bash", command="ls"), said("open", "open", path="a.py"), said("submit", "submit")]  # fmt: skip
    (episode,), report = read(tmp_path, {"trajectory": steps, "history": history, "info": {}})
    made = [(call.name, call.arguments, call.result, call.error_from) for call in episode.calls]
    assert made == [
        ("bash", {"command": "ls"}, "a.py", ""),
        ("bash", {"command": "vim a.py"}, None, "log"),
        ("open", {"path": "a.py"}, "text", ""),
        ("submit", {}, "diff", ""),
    ]
    assert [turn.content for turn in episode.turns[1:]] == ["", "no call in this", "", "", ""]
    assert report.notes["steps of SWE-agent that were not run, after which the model was asked again"] == 2


def test_of_equal_answers_the_last_was_run():
    steps = [step("again", "vim"), step("again", "vim")]
    assert messages_of_steps(steps, [{"content": "again"}]) == [None, {"content": "again"}]


@pytest.mark.parametrize(("steps", "messages"), [(0, 0), (0, 2), (2, 0), (3, 2), (2, 3)])
def test_every_step_has_its_place(steps, messages):
    found = messages_of_steps([step(f"s{i}") for i in range(steps)], [{"content": f"m{i}"} for i in range(messages)])  # fmt: skip
    assert len(found) == steps
    assert sum(one is not None for one in found) == (min(steps, messages) if steps else 0)


def test_a_demonstration_of_history_alone_is_read(tmp_path):
    result = {"role": "tool", "content": "a.py", "tool_call_ids": ["id_look"], "message_type": "observation"}
    (episode,), report = read(tmp_path, {"history": [ASKED, said("look", "bash", command="ls"), result]})
    assert list(report.formats.values()) == ["swe-agent"]
    assert [(call.name, call.result) for call in episode.calls] == [("bash", "a.py")]


def test_attempts_of_one_run(tmp_path):
    one = {"trajectory": [step("a", "ls", "x")], "history": [ASKED], "info": {"exit_status": "submitted"}}
    two = {**one, "info": {"exit_status": "exit_cost"}}
    running, report = read(tmp_path, {"attempts": [one, two]})
    assert [(e.id, e.task, e.stop_reason) for e in running] == [
        ("d__d-1/0", "d__d-1", "submitted"),
        ("d__d-1/1", "d__d-1", "exit_cost"),
    ]
    assert sum(report.notes.values()) == 2
    (chosen,), report = read(tmp_path, {"attempts": [one, two], **two})
    assert (chosen.id, chosen.stop_reason) == ("d__d-1", "exit_cost")
    assert report.notes["attempts of SWE-agent that it did not choose, left out"] == 1
