"""One episode, or a list of them, as lines: what the log says, each thing once, and nothing in Python's words."""

from __future__ import annotations

import json

from tests.report.test_trace_diagnosis import run
from tests.traces import samples
from tests.traces.make import chat, write_lines


def test_the_list_has_the_logs_word_of_success_where_there_is_no_reward(tmp_path):
    said = [{"reward": 0.5, "success": True}, {"success": True}, {"success": False}, {}]
    rows = [{"id": str(i), "messages": chat(), **one} for i, one in enumerate(said)]
    lines = run("show", write_lines(tmp_path / "log.jsonl", rows))[1].splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "0: reward 0.5", "1: success", "2: no success", "3: no reward",
    ]  # fmt: skip


def test_what_the_log_does_not_say_is_not_none(tmp_path):
    rows = [{"id": "a", "messages": chat()}, {"id": "b", "messages": chat(), "success": False, "tokens": 1, "task_id": "t"}]  # fmt: skip
    path = write_lines(tmp_path / "log.jsonl", rows)
    first, second = (run("show", path, "-e", name)[1].splitlines()[1] for name in "ab")
    assert first == f"  no task, success not said, from {path}:1"
    assert second == f"  task t, no success, 1 token, from {path}:2"


def test_turns_whose_steps_begin_again_go_by_their_place(tmp_path):
    path = tmp_path / "a.traj"
    path.write_text(json.dumps(samples.swe()))
    text = run("show", path, "-e", "a")[1]
    turns = [line for line in text.splitlines() if line.startswith("[")]
    assert turns[:3] == ["[0] system", "[1] user", "[2] assistant, step 0"]
    text = run("show", write_lines(tmp_path / "log.jsonl", [{"id": "a", "messages": chat()}]), "-e", "a")[1]
    turns = [line for line in text.splitlines() if line.startswith("[")]
    assert turns == ["[0] user", "[1] assistant", "[3] assistant"]  # the result stands in its call


def test_an_error_that_is_the_result_is_printed_once(tmp_path):
    told = [*chat()[:2], {**chat()[2], "error": "down", "content": "x"}]
    rows = [{"id": "a", "messages": chat(result="Error: no seats")}, {"id": "b", "messages": told}]
    path = write_lines(tmp_path / "log.jsonl", rows)
    text = run("show", path, "-e", "a")[1]
    assert text.count("no seats") == 1
    assert "  error (text)\n    Error: no seats" in text
    assert "  error (log): down\n    x" in run("show", path, "-e", "b")[1]


def test_an_example_without_an_episode_begins_with_what_it_is(tmp_path):
    rows = [{"id": str(i), "messages": chat()} for i in range(30)]
    text = run("diagnose", write_lines(tmp_path / "log.jsonl", rows), "--require", "foo", "--verbose")[1]
    assert "e.g.   foo: never called" in text


def test_names_of_tools_up_to_40_characters_do_not_break(tmp_path):
    names = ["n" * 29, "n" * 40, "n" * 41]
    rows = [{"id": str(i), "messages": chat(name=names[i % 3])} for i in range(30)]
    run("diagnose", write_lines(tmp_path / "log.jsonl", rows), "--html", tmp_path / "o.html")
    page = (tmp_path / "o.html").read_text()
    assert [f"<td><bdi class=whole>{name}</bdi>" in page for name in names] == [True, True, False]
    assert "#tools .whole { white-space: nowrap; }" in page
