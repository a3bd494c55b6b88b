"""`codex exec --json`. `codex-exec.jsonl` was printed by codex-cli 0.169.0 itself, which a scripted model answered: a thread, the same
thread resumed, and one that the API refused. Other kinds of items are after openai/codex' exec_events.rs (08a1f30c)."""

from __future__ import annotations

from pathlib import Path

from tests.traces.make import write_lines
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.read import read_episodes

LOG = Path(__file__).parent / "fixtures" / "coding_agents" / "codex-exec.jsonl"


def outcomes(episode):
    return [(c.name, c.error and fault_of(c.error), c.error_from) for c in episode.calls]


def test_a_thread_and_its_resumption_are_one_episode():
    (episode,), report = read_episodes([LOG])
    assert set(report.formats.values()) == {"codex-exec"}
    assert outcomes(episode) == [
        ("command_execution", "policy", "log"), ("command_execution", "", "log"), ("command_execution", "", "log"),
        ("file_change", "", "log"), ("web_search", "", "log"),
    ]  # fmt: skip
    first = episode.turns[0]
    assert (first.reasoning, first.content, len(first.calls)) == ("Let me look", "I will look.", 2)
    assert episode.calls[0].error == "héllo\nls: cannot access '/nope': No such file or directory"
    assert (episode.tokens, episode.stop_reason) == (
        81,
        "completed",
    )  # the thread's, not the sum of its runs'
    assert report.notes["threads of codex exec without an item, left out"] == 1
    assert report.notes["calls of which codex exec prints no result, answered by their status"] == 2
    assert report.num_malformed == 0


def item(number, kind, event="completed", **fields):
    return {"type": f"item.{event}", "item": {"id": f"item_{number}", "type": kind, **fields}}


def test_other_items_and_calls_that_never_end(tmp_path):
    rows = [
        {"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"},
        item(0, "mcp_tool_call", "started", server="db", tool="query", arguments={"q": 1}, status="in_progress"),
        item(0, "mcp_tool_call", server="db", tool="query", arguments={"q": 1}, result=None, error={"message": "no such table: x"}, status="failed"),
        item(1, "mcp_tool_call", server="db", tool="query", arguments={"q": 2}, result={"content": [{"type": "text", "text": "3"}]}, error=None, status="completed"),
        item(2, "command_execution", command="rm x", aggregated_output="", exit_code=None, status="declined"),
        item(3, "command_execution", command="false", aggregated_output="", exit_code=1, status="failed"),
        item(4, "todo_list", items=[{"text": "a", "completed": False}]), item(5, "hologram"), {"type": "error", "message": "Reconnecting"},
        item(6, "command_execution", "started", command="sleep 9", aggregated_output="", exit_code=None, status="in_progress"),
        {"type": "turn.failed", "error": {"message": "boom"}},
        {"type": "thread.started", "thread_id": "t"}, item(0, "command_execution", command="ls", aggregated_output="a", exit_code=0, status="completed"),
    ]  # fmt: skip
    (episode,), report = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [(c.name, c.result, c.error) for c in episode.calls] == [
        ("mcp__db__query", "no such table: x", "no such table: x"), ("mcp__db__query", "3", ""),
        ("command_execution", "", "declined"), ("command_execution", "", "Exit code 1"),
        ("command_execution", None, ""), ("command_execution", "a", ""),
    ]  # fmt: skip
    assert episode.stop_reason == "error"
    assert report.notes["to-do lists of codex exec, left out"] == 1
    assert report.notes["items of codex exec of a kind we do not read, left out: hologram"] == 1


def test_an_event_of_another_program_is_not_codex(tmp_path):
    (episode,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [
        {"type": "error", "message": "x"}, {"messages": [{"role": "user", "content": "a"}]},
    ])])  # fmt: skip
    assert set(report.formats.values()) == {"messages"}
    assert len(episode.turns) == 1
