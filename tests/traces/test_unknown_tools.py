"""Which errors say that there is no such tool, through the readers and the table; and what an existing tool did not find."""

from __future__ import annotations

import time

import pytest

from tests.traces.make import chat, write_lines
from tests.traces.sharding import same
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of

NONE = [
    "Unknown tool: web", "Error: unknown tool web", "unknown function 'web'", "No such tool: web", "tool_use_error: No such tool available: web", "Tool web not found",
    "Tool 'web' does not exist", "Error: function `web` not found", "Tool not found: web", "No tool named 'web' found", "There is no tool called web", "Invalid tool: web",
    "invalid tool name 'web'", "Tool 'web' not recognized", "Tool web is not available", "Error: tool 'web' is not registered", "Error: Unsupported tool web",
    "Error: web is not a valid tool", "MCP error -32602: Tool mcp.web-search not found",
]  # fmt: skip
TOLD = [
    "Model tried to call unavailable tool 'web'. Available tools: search.", "Agent tried to call non-existent tool web", "tool_not_found: web",
    "Tool 'web' is not in the list of allowed tools",
]  # fmt: skip
"""Where a field says that it is an error."""
OTHERS = [
    "No such function or directory",
    "Error executing tool get_user: User u17 not found", "Error: function load(): file not found", "Tool call get_user: record does not exist", "Tool call not found: c17",
    "Error: the function you asked me to plot does not exist", "Error executing tool get_user: not found", "Invalid tool arguments: q", "Error: invalid function call",
    "Error: tool results not found", "ERROR: function foo(integer) does not exist", "Error: unknown function argument q", "Error in tool web: file a.txt not found",
]  # fmt: skip


def _steps(path, errors):
    rows = []
    for i, text in enumerate(errors):
        call = {"episode_id": f"e{i}", "step": 0, "type": "tool_call", "tool": "web", "args": {"i": i}}
        rows += [
            call,
            {"episode_id": f"e{i}", "step": 1, "type": "tool_result", "tool": "web", "error": text},
        ]
    return write_lines(path, rows)


@pytest.mark.parametrize(("errors", "each"), [(NONE, 1), (TOLD, 1), (OTHERS, 0)])
def test_only_what_is_said_of_the_tool_itself_counts(tmp_path, errors, each):
    table = same(_steps(tmp_path / "log.jsonl", errors))
    found = dict(zip(errors, table.counts["unknown_tools"].tolist(), strict=True))
    assert found == dict.fromkeys(errors, each)


@pytest.mark.parametrize("text", NONE)
def test_they_are_errors_also_where_no_field_says_so(tmp_path, text):
    path = write_lines(tmp_path / "log.jsonl", [{"id": "a", "messages": chat(result=text)}])
    (episode,), _ = read_episodes([path])
    assert episode.calls[0].error == text


def test_a_call_of_a_tool_that_the_log_declares_is_never_one(tmp_path):
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    rows = [
        {"id": "declared", "tools": tools, "messages": chat(result="Error: unknown tool search")},
        {"id": "not", "messages": chat(result="Error: unknown tool search")},
        {"id": "none", "tools": [], "messages": chat(name="web", result="found")},
        {"id": "another", "tools": tools, "messages": chat(name="web", result="found")},
    ]
    episodes, _ = read_episodes([write_lines(tmp_path / "log.jsonl", rows)])
    assert [facts_of(e).counts["unknown_tools"] for e in episodes] == [0, 1, 0, 1]


def test_a_repeat_late_in_a_long_episode_is_found_in_a_moment(tmp_path):
    calls = [{"episode_id": "e", "step": i, "type": "tool_call", "tool": "s", "args": {"k": min(i, 39_999)}} for i in range(40_001)]  # fmt: skip
    (episode,), _ = read_episodes([write_lines(tmp_path / "log.jsonl", calls)])
    start = time.process_time()
    facts = facts_of(episode)
    assert time.process_time() - start < 5  # 80 s when each was held against all before it
    assert (facts.counts["repeats"], facts.evidence["repeats"].step) == (1, 40_000)
