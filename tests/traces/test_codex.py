"""Codex CLI's rollouts. The fixtures were written by codex-cli 0.169.0 itself (`codex exec`), which a scripted model answered
on this machine; `fixtures/coding_agents/shorten.py` cut its makers' texts. Older forms are after openai/codex' source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.make import write_lines
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.unknown_tools import says_unknown_tool
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of

LOGS = Path(__file__).parent / "fixtures" / "coding_agents"


def outcomes(episode):
    return [(c.name, c.error and fault_of(c.error), c.error_from) for c in episode.calls]


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


MAIN = [
    ("exec_command", "", "log"), ("exec_command", "", "log"), ("exec_command", "unknown", "log"),
    ("exec_command", "policy", "log"), ("telescope", "policy", "text"), ("exec_command", "policy", "parse"),
    ("apply_patch", "", "log"), ("apply_patch", "policy", "text"), ("update_plan", "policy", "text"),
    ("exec_command", "", "log"),
]  # fmt: skip


def test_calls_are_counted_once_and_blamed():
    (episode,), report = read_episodes([LOGS / "rollout-main.jsonl"])
    assert set(report.formats.values()) == {"codex"}
    assert outcomes(episode) == MAIN
    assert [c.name for c in episode.calls if says_unknown_tool(c.error)] == ["telescope", "update_plan"]
    assert episode.calls[3].error == "cat: nope.py: No such file or directory"  # without the head over it
    assert [turn.role for turn in episode.turns[:5]] == ["system", "developer", "user", "user", "assistant"]
    first = episode.turns[4]
    assert (first.reasoning, len(first.calls), first.tokens) == ("Look at the code first.", 2, 33)
    assert (episode.tokens, episode.model, episode.stop_reason) == (330, "gpt-5.5", "completed")
    assert episode.id == "01a2092b-055f-7261-b222-7d90a1b30fc9"


def test_without_the_screens_events_the_heads_of_results_say_it(tmp_path):
    """Versions before 0.16x kept no `item_completed` of a command, and no `token_usage_record`."""
    kinds = ("item_completed",)
    rows = [
        row for row in rows_of(LOGS / "rollout-main.jsonl")
        if row["payload"].get("type") not in kinds and row["type"] != "token_usage_record"
    ]  # fmt: skip
    (episode,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    told = [(name, fault, "text" if fault and source == "log" else source) for name, fault, source in MAIN]
    assert outcomes(episode) == told
    assert [c.error.splitlines()[-1] for c in episode.calls[2:4]] == [
        "AssertionError: -1", "cat: nope.py: No such file or directory",
    ]  # fmt: skip
    assert (episode.tokens, episode.turns[4].tokens) == (330, 33)


def test_a_sub_agents_rollout_begins_with_its_parents():
    episodes, report = read_episodes([LOGS / "codex_agents"])
    parent, child = episodes
    assert [call.name for call in parent.calls] == ["exec", "exec", "spawn_agent", "wait_agent"]
    assert [bool(call.error) for call in parent.calls] == [False, True, False, False]
    assert child.calls == []  # `spawn_agent` is its parent's
    assert child.extra["parent_thread_id"] == parent.id
    assert [turn.content for turn in child.turns if turn.role == "assistant"] == ["All done."]
    assert child.turns[-2].name == "/root"
    counts = {note.split(",")[0]: count for note, count in report.notes.items()}
    assert counts["lines that a rollout of Codex repeats of the session it was forked from"] == 5
    assert counts["runs of sub-agents"] == 1
    assert counts["commands that a script of the agent's ran (Codex' code mode)"] == 2


def test_a_compaction_is_no_answer():
    """But it was paid for."""
    (parent, child), report = read_episodes([LOGS / "codex_agents"])
    assert (parent.tokens, child.tokens) == (9 * 33, 2 * 33)
    assert not [turn for turn in parent.turns if turn.content == "Summary: add was repaired."]
    assert sum(count for note, count in report.notes.items() if note.startswith("compactions")) == 5


def line(kind, **payload):
    return {"timestamp": "2026-11-23T16:00:00Z", "type": kind, "payload": payload}


def item(kind, **fields):
    return line("response_item", type=kind, **fields)


def said(role, text):
    return item(
        "message",
        role=role,
        content=[{"type": "input_text" if role == "user" else "output_text", "text": text}],
    )


def event(kind, **fields):
    return line("event_msg", type=kind, **fields)


@pytest.fixture
def read(tmp_path):
    def reading(*rows):
        (episode,), report = read_episodes(
            [write_lines(tmp_path / "a.jsonl", [line("session_meta", id="s"), *rows])]
        )
        return episode, report

    return reading


def test_turns_that_were_rolled_back_or_ended(read):
    episode, report = read(
        event("task_started"), said("user", "a"), said("assistant", "A"), event("task_complete"),
        event("task_started"), said("user", "b"), said("assistant", "B"), event("task_complete"),
        event("thread_rolled_back", num_turns=1),
        event("task_started"), said("user", "c"), event("turn_aborted", reason="interrupted"),
    )  # fmt: skip
    assert [turn.content for turn in episode.turns] == ["a", "A", "c"]
    assert episode.stop_reason == "interrupted"
    assert report.notes["turns that the user rolled back (Codex), left out"] == 1


def test_a_turn_that_the_api_failed(read):
    """As codex-cli 0.169.0 writes a refused request: the turn is complete, and names its error."""
    error = {"message": "boom", "codex_error_info": "other"}
    episode, _ = read(event("task_started"), said("user", "a"), event("task_complete", error=error))
    assert episode.stop_reason == "error"
    episode, _ = read(
        event("task_started"), said("user", "a"), event("task_complete", error=error),
        event("task_started"), said("user", "b"), said("assistant", "B"), event("task_complete", error=None),
    )  # fmt: skip
    assert episode.stop_reason == "completed"


HEADS = (
    "Chunk ID: {i:06x}\nWall time: 0.{i}1 seconds\nProcess exited with code 0\nOriginal token count: 1\nOutput:\nWall time: {same}\n",
    "Exit code: 0\nWall time: {i} seconds\nOutput:\nWall time: {same}\n",
    '{{"output":"Wall time: {same}\\n","metadata":{{"exit_code":0,"duration_seconds":{i}.5}}}}',
)


@pytest.mark.parametrize("head", HEADS)
def test_a_command_that_repeats_is_a_loop_whatever_its_chunk_and_seconds(read, head):
    """Codex writes both over each result, so that no two are equal; what was printed must be."""
    rows = [
        row for i in range(4) for row in (
            item("function_call", name="exec_command", call_id=f"c{i}", arguments='{"cmd": "ls"}'),
            item("function_call_output", call_id=f"c{i}", output=head.format(i=i, same=1)),
        )
    ]  # fmt: skip
    episode, _ = read(said("user", "go"), *rows)
    counts = facts_of(episode).counts
    assert (counts["repeats"], counts["loop_calls"]) == (3, 4)
    rows[3] = item("function_call_output", call_id="c1", output=head.format(i=1, same=2))
    episode, _ = read(said("user", "go"), *rows)
    counts = facts_of(episode).counts
    assert (counts["repeats"], counts["loop_calls"]) == (2, 0)


def test_results_of_older_versions(read):
    """`exec_command_end` and results as JSON (before 0.50), and a `local_shell_call` of the provider's."""
    output = json.dumps({"output": "no space\n", "metadata": {"exit_code": 2, "duration_seconds": 0.1}})
    episode, _ = read(
        item("function_call", name="shell", call_id="a", arguments='{"command": ["ls"]}'),
        item("function_call_output", call_id="a", output=output),
        item("function_call", name="shell", call_id="b", arguments="{}"),
        event("exec_command_end", call_id="b", exit_code=1, aggregated_output="gone", duration={"secs": 1, "nanos": 5e8}),
        item("function_call_output", call_id="b", output="Exit code: 1\nWall time: 2 seconds\nOutput:\ngone"),
        item("local_shell_call", call_id="c", status="completed", action={"type": "exec", "command": ["ls"]}),
        item("function_call_output", call_id="c", output="fine"),
    )  # fmt: skip
    assert [(c.name, c.error, c.error_from, c.latency_s) for c in episode.calls] == [
        ("shell", "no space", "text", None), ("shell", "gone", "log", 1.5), ("local_shell", "", "", None),
    ]  # fmt: skip


def test_an_answers_tokens_count_once(read):
    """`token_count` comes again where a limit changed."""
    count = event("token_count", info={"last_token_usage": {"output_tokens": 7}})
    episode, _ = read(
        said("user", "a"),
        said("assistant", "A"),
        count,
        count,
        said("user", "b"),
        said("assistant", "B"),
        count,
    )
    assert (episode.tokens, [turn.tokens for turn in episode.turns]) == (14, [None, 7, None, 7])


def test_kinds_we_do_not_read_are_counted(read):
    _, report = read(said("user", "a"), item("hologram", text="?"))
    assert report.notes["items of a rollout of a kind we do not read, left out: hologram"] == 1


def test_a_rollout_that_is_being_written(tmp_path):
    text = (LOGS / "rollout-main.jsonl").read_text(encoding="utf-8")
    path = tmp_path / "a.jsonl"
    path.write_text(text[: len(text) // 2], encoding="utf-8")
    (episode,), report = read_episodes([path])
    assert (report.num_malformed, episode.stop_reason) == (1, None)
    assert 0 < len(episode.calls) < 10


def test_a_rollout_before_lines_had_a_payload(tmp_path):
    """As versions before September 2025 wrote it: the session's fields, bare items, marks of states."""
    output = json.dumps({"output": "no", "metadata": {"exit_code": 1, "duration_seconds": 0.1}})
    rows = [
        {"id": "5973b6c0", "timestamp": "2025-05-07T17:24:21.597Z", "instructions": None, "git": {"commit_hash": "abc"}},
        {"record_type": "state"}, said("user", "hi")["payload"], {"record_type": "state"},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": None},
        {"type": "function_call", "id": "fc", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "a"},
        {"type": "function_call_output", "call_id": "a", "output": output}, said("assistant", "done")["payload"], {"odd": 1},
    ]  # fmt: skip
    (episode,), report = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert set(report.formats.values()) == {"codex"}
    assert (episode.id, episode.extra["commit"], episode.time) == (
        "5973b6c0",
        "abc",
        pytest.approx(1746638661.597),
    )
    assert [(call.name, call.error) for call in episode.calls] == [("shell", "no")]
    assert [(turn.role, turn.reasoning) for turn in episode.turns] == [
        ("user", None),
        ("assistant", "hm"),
        ("assistant", None),
    ]
    assert report.num_malformed == 1
