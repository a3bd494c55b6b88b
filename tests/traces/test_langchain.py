"""LangChain's and LangGraph's messages: who speaks by type or by class, results that failed, calls that could not be parsed."""

from __future__ import annotations

import pytest

from tests.traces.make import write_lines
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of

CALLS = [{"name": "w", "args": {"c": n}, "id": f"c{n}", "type": "tool_call"} for n in (1, 2)]
BAD = [{"name": "w", "args": "{bad", "id": "c3", "error": None, "type": "invalid_tool_call"}]
MESSAGES = [
    ("system", {"content": "Be nice."}),
    ("human", {"content": "Where?"}),
    ("ai", {"content": "", "tool_calls": CALLS, "invalid_tool_calls": BAD, "usage_metadata": {"output_tokens": 7}}),
    ("tool", {"content": "nope", "tool_call_id": "c2", "status": "error", "name": "w"}),
    ("tool", {"content": "Error: 18", "tool_call_id": "c1", "status": "success", "name": "w"}),
    ("ai", {"content": [{"type": "text", "text": "There."}]}),
]  # fmt: skip
CLASSES = {"system": "SystemMessage", "human": "HumanMessage", "ai": "AIMessageChunk", "tool": "ToolMessage"}


def written(how):
    return [
        {
            "type": {"type": kind, **fields},
            "class": {"type": CLASSES[kind], **fields},
            "role": {"role": CLASSES[kind], **fields},
            "data": {"type": kind, "data": {"type": kind, **fields}},
            "dumped": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", CLASSES[kind]], "kwargs": {"type": kind, **fields}},
        }[how]
        for kind, fields in MESSAGES
    ]  # fmt: skip


@pytest.mark.parametrize("mapped", [False, True, "batch"])
@pytest.mark.parametrize("how", ["type", "class", "role", "data", "dumped"])
def test_messages_in_all_their_spellings(tmp_path, how, mapped):
    thread = [written(how)] if mapped == "batch" else written(how)
    row = {"outputs": {"thread": thread}} if mapped else {"messages": thread}
    mapping = {"messages": "outputs.thread"} if mapped else {}
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])], mapping=mapping)
    assert [(t.role, t.content or None) for t in found.turns] == [("system", "Be nice."), ("user", "Where?"), ("assistant", None), ("assistant", "There.")]  # fmt: skip
    assert [(c.name, c.arguments, c.bad_arguments, c.result, c.error, c.error_from) for c in found.calls] == [
        ("w", {"c": 1}, None, "Error: 18", "", "log"),
        ("w", {"c": 2}, None, "nope", "nope", "log"),
        ("w", None, "{bad", None, "arguments are no JSON", "parse"),
    ]
    assert found.turns[2].tokens == 7
    assert facts_of(found).counts["bad_arguments"] == 1
    assert report.notes == {"calls whose arguments are no JSON, kept as text": 1}


def test_a_call_that_stands_twice_is_one(tmp_path):
    """Anthropic's blocks beside LangChain's calls; OpenAI's calls in `additional_kwargs` alone."""
    block = {"type": "tool_use", "id": "c1", "name": "w", "input": {"c": 1}}
    openai = {"id": "c1", "type": "function", "function": {"name": "w", "arguments": '{"c": 1}'}}
    rows = [
        {"content": [{"type": "text", "text": "I look."}, block], "tool_calls": CALLS[:1]},
        {"content": "I look.", "additional_kwargs": {"tool_calls": [openai]}, "tool_calls": []},
        {"content": "I look.", "additional_kwargs": {"tool_calls": [openai]}, "tool_calls": CALLS[:1]},
    ]
    path = write_lines(tmp_path / "a.jsonl", [{"messages": [{"type": "ai", **row}]} for row in rows])
    for found in read_episodes([path])[0]:
        assert [(c.id, c.name, c.arguments) for c in found.calls] == [("c1", "w", {"c": 1})]
        assert found.turns[0].content == "I look."
