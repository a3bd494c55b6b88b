"""`--map` for an object of episodes, parallel arrays, and steps whose content is blocks; `export --to steps` of a chat that the
agent opens."""

from __future__ import annotations

import json

import pytest

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, write_lines
from trimtab.errors import TraceError
from trimtab.traces.read import read_episodes


def read(tmp_path, value, mapping):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return read_episodes([path], mapping=mapping)


RUNS = {"one": {"turns": chat(), "score": 1}, "two": {"turns": chat(), "score": 0}}


@pytest.mark.parametrize(
    ("value", "mapping"),
    [
        (RUNS, {"messages": "turns", "reward": "score"}),
        (RUNS, {"messages": "*.turns", "reward": "*.score", "id": "*"}),
        ({"runs": RUNS}, {"messages": "runs.*.turns", "reward": "runs.*.score"}),
    ],
)
def test_an_object_of_episodes(tmp_path, value, mapping):
    episodes, report = read(tmp_path, value, mapping)
    assert [(one.id, one.reward, len(one.calls)) for one in episodes] == [("one", 1.0, 1), ("two", 0.0, 1)]
    assert report.notes == {"episodes that are fields of one record, each read": 2}


def test_a_list_of_episodes_with_what_they_share(tmp_path):
    value = {"model": "m", "runs": [{"chat": chat(), "name": "a"}, {"chat": chat()}]}
    episodes, report = read(
        tmp_path, value, {"messages": "runs.*.chat", "id": "runs.*.name", "model": "model"}
    )
    assert [(one.id, one.model) for one in episodes] == [("a", "m"), ("1", "m")]
    assert report.notes["records in which --map id=runs.*.name is not found"] == 1


def test_what_is_no_object_of_episodes(tmp_path):
    _, report = read(tmp_path, {"runs": 7}, {"messages": "runs.*.chat"})
    assert (report.num_malformed, report.problems[0].reason) == (1, "no object or list of episodes at runs")
    with pytest.raises(TraceError, match="stands at several places"):
        read(tmp_path, RUNS, {"messages": "a.*.turns", "reward": "b.*.score"})
    episodes, _ = read(
        tmp_path, {**RUNS, "note": "x"}, {"messages": "turns"}
    )  # a field is no episode: not guessed
    assert [one.turns for one in episodes] == []


def test_parallel_arrays(tmp_path):
    value = {
        "who": ["user", "agent", "agent"], "text": ["go", "look", None], "tool": [None, "ls", "rm"],
        "args": [None, {"dir": "."}, "rm x"], "out": [None, "a", None], "err": [None, None, "denied"],
    }  # fmt: skip
    names = {
        "role": "who",
        "content": "text",
        "tool": "tool",
        "args": "args",
        "result": "out",
        "error": "err",
    }
    (episode,), report = read(tmp_path, value, {f"messages.{name}": path for name, path in names.items()})
    assert [(turn.role, turn.name, turn.content) for turn in episode.turns] == [
        ("user", None, "go"), ("assistant", "agent", "look"), ("assistant", "agent", None),
    ]  # fmt: skip
    assert [(c.name, c.arguments, c.result, c.error) for c in episode.calls] == [
        ("ls", {"dir": "."}, "a", ""), ("rm", {"input": "rm x"}, "", "denied"),
    ]  # fmt: skip
    _, report = read(
        tmp_path, {**value, "text": ["go"]}, {"messages.role": "who", "messages.content": "text"}
    )
    assert report.notes["records whose parallel arrays differ in length, read up to the shortest"] == 1


def test_actions_and_observations(tmp_path):
    value = {"actions": ["ls", "cat a"], "observations": ["a", "cat: a: No such file or directory"]}
    (episode,), _ = read(tmp_path, value, {"messages.args": "actions", "messages.result": "observations"})
    assert [(c.name, c.arguments, bool(c.error)) for c in episode.calls] == [
        ("action", {"input": "ls"}, False), ("action", {"input": "cat a"}, True),
    ]  # fmt: skip


def test_messages_of_other_field_names(tmp_path):
    turns = [{"speaker": "user", "said": "q"}, {"speaker": "Planner", "said": "a"}, {"speaker": "Coder"}]
    mapping = {"messages.role": "turns[*].speaker", "messages.content": "turns[*].said"}
    (episode,), _ = read(tmp_path, {"turns": turns}, mapping)
    assert [(turn.role, turn.name, turn.content) for turn in episode.turns] == [
        ("user", None, "q"), ("assistant", "Planner", "a"), ("assistant", "Coder", None),
    ]  # fmt: skip


def test_a_field_that_no_element_has_is_noted(tmp_path):
    mapping = {"messages.role": "turns[*].role", "messages.content": "turns[*].words"}
    _, report = read(tmp_path, {"turns": chat()}, mapping)
    assert report.notes["records read, and --map messages.content=turns[*].words is in none of them"] == 1


def test_unknown_fields_are_refused(tmp_path):
    with pytest.raises(TraceError, match="there is no such field"):
        read(tmp_path, {}, {"messages.colour": "a"})


BLOCKS = [
    {"run": "e", "kind": "user_message", "content": "go"},
    {"run": "e", "kind": "assistant_message", "content": [
        {"type": "text", "text": "Both."}, {"type": "tool_use", "id": "1", "name": "ls", "input": {"d": "."}},
        {"type": "tool_use", "id": "2", "name": "rm", "input": {}}]},
    {"run": "e", "kind": "user_message", "content": [
        {"type": "tool_result", "tool_use_id": "2", "content": "denied", "is_error": True},
        {"type": "tool_result", "tool_use_id": "1", "content": "Error: is a name", "is_error": False}]},
]  # fmt: skip


def test_blocks_of_a_step_keep_their_calls(tmp_path):
    mapping = {"episode_id": "run", "type": "kind", "content": "content"}
    (episode,), report = read_episodes([write_lines(tmp_path / "a.jsonl", BLOCKS)], mapping=mapping)
    assert [(c.name, c.arguments, c.result, c.error) for c in episode.calls] == [
        ("ls", {"d": "."}, "Error: is a name", ""), ("rm", {}, "denied", "denied"),
    ]  # fmt: skip
    assert [(turn.role, turn.content) for turn in episode.turns][:2] == [
        ("user", "go"),
        ("assistant", "Both."),
    ]
    assert not [note for note in report.notes if "parts of messages" in note]


def test_the_command_reads_such_a_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(RUNS), encoding="utf-8")
    _, text = run("diagnose", path, "--map", "messages=turns", "--map", "reward=score")
    assert "2 episodes, 2 calls, format mapped" in text


GREETING = {"role": "assistant", "content": "How can I help?"}


def exported(tmp_path, *messages):
    path = write_lines(tmp_path / "a.jsonl", [{"id": "e", "messages": list(messages)}])
    out = tmp_path / "o.jsonl"
    code, text = run("export", path, "--to", "steps", "-o", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return code, text, rows


def test_an_agents_greeting_stands_in_the_prompt(tmp_path):
    _, text, (row,) = exported(tmp_path, GREETING, *chat())
    assert row["prompt"] == "<assistant>\nHow can I help?\n</assistant>\n\nWhere is x?"
    assert (len(row["completions"]), row["labels"]) == (2, [True, True])
    assert "How can I help" not in row["completions"][0]
    assert "episodes that the agent opened: its greeting stands in the prompt: 1" in " ".join(text.split())


def test_a_prompt_that_is_there_stays(tmp_path):
    _, _, (row,) = exported(tmp_path, {"role": "system", "content": "Be nice."}, GREETING, *chat())
    assert (row["prompt"], row["completions"][0]) == ("Be nice.", "How can I help?")


@pytest.mark.parametrize(
    "messages", [[GREETING], [GREETING, *chat()[:1]], chat()[1:], [*chat()[1:], *chat()]]
)
def test_an_agent_that_nobody_asks_has_no_prompt(tmp_path, messages):
    with pytest.raises(TraceError, match="1 x episode without a prompt"):
        exported(tmp_path, *messages)
