"""Messages whose content is blocks: reasoning in its own field, calls and results read, nothing written into the text for them."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import write_lines
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.export.samples import messages_of
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of

USE = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": 1}}
ANTHROPIC = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hmm", "signature": "x"}, {"type": "text", "text": "I look."}, USE, {**USE, "id": "toolu_2"}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": "boom"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "found"}]},
        {"type": "text", "text": "Go on."},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "bye"}]},
]  # fmt: skip


def test_anthropic_messages(tmp_path):
    row = {
        "id": "a",
        "system": "be nice",
        "tools": [{"name": "search", "input_schema": {"type": "object"}}],
        "messages": ANTHROPIC,
    }
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    assert [(t.role, t.content, t.reasoning) for t in found.turns] == [
        ("system", "be nice", None),
        ("user", "hi", None),
        ("assistant", "I look.", "hmm"),
        ("user", "Go on.", None),
        ("assistant", "bye", None),
    ]
    assert [(c.name, c.arguments, c.result, c.error, c.error_from) for c in found.calls] == [
        ("search", {"q": 1}, "found", "", ""),
        ("search", {"q": 1}, "boom", "boom", "log"),
    ]
    assert found.tools == [
        {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    ]
    assert not report.notes
    assert "[t" not in json.dumps([m["content"] for m in messages_of(found)])


def _own(kind, content, **more):
    """An answer that calls a tool of the provider's, has its result, and goes on."""
    use = "mcp_tool_use" if kind.startswith("mcp") else "server_tool_use"
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "usage": {"completion_tokens": 7}, "content": [
            {"type": "text", "text": "I look."},
            {"type": use, "id": "s", "name": "search", "input": {"q": 1}},
            {"type": kind, "tool_use_id": "s", "content": content, **more},
            {"type": "text", "text": "end"},
        ]},
    ]  # fmt: skip


FOUND = [{"type": "text", "text": "found"}]


@pytest.mark.parametrize(
    ("messages", "result", "error"),
    [
        (_own("web_search_tool_result", FOUND), "found", ""),
        (_own("mcp_tool_result", FOUND, is_error=False), "found", ""),
        (_own("mcp_tool_result", [{"type": "text", "text": "down"}], is_error=True), "down", "down"),
        (_own("code_execution_tool_result", {"type": "code_execution_result", "stdout": "4", "return_code": 0}), None, ""),
        (_own("web_fetch_tool_result", {"type": "web_fetch_tool_error", "error_code": "url_not_accessible"}), None, "url_not_accessible"),
        (_own("bash_code_execution_tool_result", {"type": "bash_code_execution_tool_result_error", "error_code": "unavailable"}), None, "unavailable"),
    ],
)  # fmt: skip
def test_tools_that_the_provider_runs_are_answered_in_order(tmp_path, messages, result, error):
    path = write_lines(tmp_path / "a.jsonl", [{"id": "a", "messages": messages, "success": True}])
    (found,), report = read_episodes([path])
    assert [(t.role, t.content, t.tokens, len(t.calls)) for t in found.turns] == [
        ("user", "go", None, 0),
        ("assistant", "I look.", 7, 1),
        ("assistant", "end", None, 0),
    ]
    (call,) = found.calls
    assert (call.name, call.arguments, call.error) == ("search", {"q": 1}, error)
    assert call.result is not None
    assert result in (None, call.result)
    assert call.error_from in ("log" if error else "", "log")
    assert [m["role"] for m in messages_of(found)] == ["user", "assistant", "tool", "assistant"]
    assert not report.notes


def test_tools_of_the_provider_are_no_unknown_ones(tmp_path):
    """Anthropic's `code_execution` is called as `bash_code_execution`, and MCP servers are declared beside the tools."""
    tools = [{"type": "code_execution_20250825", "name": "code_execution"}, {"name": "search", "input_schema": {"type": "object"}}]  # fmt: skip
    ran = [{"type": kind, "id": name, "name": name, "input": {}} for kind, name in (("server_tool_use", "bash_code_execution"), ("mcp_tool_use", "echo"), ("tool_use", "made_up"), ("server_tool_use", "echo"))]  # fmt: skip
    rows = [
        {"tools": tools, "messages": [{"role": "assistant", "content": ran}]},
        {"tools": [{"codeExecution": {}}], "contents": [{"role": "model", "parts": [{"executableCode": {"code": "1"}}]}]},
        {"messages": [{"role": "assistant", "content": ran}]},
    ]  # fmt: skip
    found, _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [facts_of(one).counts["unknown_tools"] for one in found] == [1, 0, 0]
    named = [tool["function"]["name"] for tool in found[0].tools]
    assert named == ["code_execution", "search", "bash_code_execution", "echo"]
    assert found[2].tools is None


def test_two_tools_of_the_provider_and_a_last_one_that_is_answered_later(tmp_path):
    call = {"type": "server_tool_use", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "content": FOUND}
    content = [
        {**call, "id": "1"}, {**result, "tool_use_id": "1"}, {"type": "text", "text": "and"},
        {**call, "id": "2"}, {**call, "id": "3"}, {**result, "tool_use_id": "3"}, {**result, "tool_use_id": "2", "content": "two"},
        {**call, "id": "4"},
    ]  # fmt: skip
    late = [{**result, "tool_use_id": "4", "content": "four"}, {"type": "text", "text": "end"}]
    messages = [{"role": "assistant", "content": content}, {"role": "assistant", "content": late}]
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [{"messages": messages}])])
    said = [(t.content, [(c.id, c.result) for c in t.calls]) for t in found.turns]
    assert said == [
        (None, [("1", "found")]),
        ("and", [("2", "two"), ("3", "found")]),
        (None, [("4", "four")]),
        ("end", []),
    ]
    assert not report.notes


def test_inspect_reasoning_is_no_text(tmp_path):
    thought = {"type": "reasoning", "reasoning": "let me think", "signature": "abc", "redacted": False}
    hidden = {"type": "reasoning", "reasoning": "gAAAA", "redacted": True, "summary": "in short"}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [thought, hidden, {"type": "text", "text": "I run."}]},
    ]
    log = {"version": 2, "eval": {"model": "m"}, "samples": [{"id": 1, "epoch": 1, "messages": messages}]}
    (found,), report = read_episodes([write_lines(tmp_path / "log.json", [log])])
    assert (found.turns[1].content, found.turns[1].reasoning) == ("I run.", "let me think\nin short")
    assert messages_of(found)[1]["reasoning_content"] == "let me think\nin short"
    assert report.notes == {"reasoning that the provider encrypted, left out": 1}


@pytest.mark.parametrize(
    ("message", "made"),
    [
        ({"role": "user", "content": []}, [{"role": "user", "content": []}]),
        ({"role": "user", "content": ["a"]}, [{"role": "user", "content": ["a"]}]),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
                }
            ],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "4"},
            [{"role": "tool", "tool_call_id": "c", "content": "4"}],
        ),
        (
            {"role": "assistant", "reasoning": "a", "content": [{"type": "redacted_thinking", "data": "x"}]},
            [{"role": "assistant", "reasoning": "a", "content": None}],
        ),
    ],
)
def test_edges(message, made):
    assert unpacked(message, ReadReport()) == made


def test_what_is_not_read_is_named_and_counted():
    report = ReadReport()
    (made,) = unpacked(
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}, report
    )
    assert made["content"] == "a[image_url]"
    assert report.notes == {"parts of messages that are no text, written as [kind]": 1}


@pytest.mark.parametrize("part", ['[{"type": "image", "x": %s}]', '{"x": %s}'])
def test_a_value_nested_to_pythons_limit_is_read_or_malformed(tmp_path, part):
    """Parsing may succeed some frames short of the limit at which writing the same value as text does not."""
    seen = set()
    for depth in range(850, 1001):
        path = tmp_path / "log.jsonl"
        content = part % ("[" * depth + "]" * depth)
        lines = ['{"messages": [{"role": "user", "content": ' + text + "}]}\n" for text in (content, '"a"')]
        path.write_text("".join(lines))
        episodes, report = read_episodes([path])
        assert len(episodes) + report.num_malformed == 2
        seen.add(len(episodes))
    assert seen == {1, 2}


def test_strings_and_nulls_among_blocks(tmp_path):
    """LangChain's content is a list of strings and of blocks."""
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    back = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": "boom"}
    messages = [
        {"role": "assistant", "content": ["I look.", None, use]},
        {"role": "user", "content": [back, "go on"]},
        {"role": "assistant", "content": [None, {"type": "text", "text": "a"}, "b"]},
        {"role": "user", "content": ["a", "b"]},
    ]
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [{"messages": messages}])])
    assert [(t.role, t.content) for t in found.turns] == [("assistant", "I look."), ("user", "go on"), ("assistant", "ab"), ("user", '["a", "b"]')]  # fmt: skip
    (call,) = found.calls
    assert (call.name, call.result, call.error, call.error_from) == ("f", "boom", "boom", "log")
    assert not report.notes


OWN = [{"type": "apple", "id": 1}, {"type": "pear"}]
TEXT = {"type": "text", "text": "found"}


@pytest.mark.parametrize("written", ["openai", "anthropic", "responses"])
@pytest.mark.parametrize(
    ("content", "result"),
    [
        (OWN, json.dumps(OWN)), ([{"type": "file", "name": "a.py"}, {"type": "dir", "name": "é"}], '[{"type": "file", "name": "a.py"}, {"type": "dir", "name": "é"}]'),
        ([*OWN, None, "x"], json.dumps([*OWN, None, "x"])), ([{"type": 3}], '[{"type": 3}]'), ([{"type": None, "a": 1}], '[{"type": null, "a": 1}]'),
        ([TEXT, "x", None], "foundx"), ([{"type": "input_text", "text": "a"}, {"type": "input_image"}], "a[input_image]"), ([TEXT, {"type": "apple"}], "found[apple]"),
        ([{"type": "file", "file_id": "f"}], "[file blake2b:"), ([{"type": "video", "video": "f"}], "[video blake2b:"), ([{"type": "video", "title": "a"}], '[{"type": "video", "title": "a"}]'), ([{"type": "resource", "resource": {"uri": "a"}}], "[resource blake2b:"), ([{"type": "refusal", "refusal": "no"}], "no"),
    ],
)  # fmt: skip
def test_json_of_a_tool_whose_items_have_types_stays_json(tmp_path, written, content, result):
    call = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    back = {
        "openai": {"role": "tool", "tool_call_id": "a", "content": content},
        "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": content}]},
        "responses": {"type": "function_call_output", "call_id": "a", "output": content},
    }[written]  # fmt: skip
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}, back]
    (found,), _ = read_episodes([write_lines(tmp_path / "a.jsonl", [{"messages": messages}])])
    (call,) = found.calls
    assert len(found.turns) == 1
    assert call.result.startswith(result) if result.endswith("blake2b:") else call.result == result
