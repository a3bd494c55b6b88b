"""Messages of other makers: who speaks, what was called, what came back; ShareGPT, Gemini, Bedrock, OpenAI's refusals and custom tools."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import write_lines
from trimtab.traces.export.samples import messages_of
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of


def read(tmp_path, row):
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    return found, report


def shape(episode):
    return [(t.role, t.content, [(c.name, c.arguments, c.result) for c in t.calls]) for t in episode.turns]


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
TOOL = {"type": "function", "function": {"name": "search", "description": "d", "parameters": SCHEMA}}
CALLED = [
    ("user", "Where?", []),
    ("assistant", "I look.", [("search", {"q": "x"}, "found")]),
    ("assistant", "There.", []),
]


def test_a_refusal_is_what_the_agent_says(tmp_path):
    said = "I'm sorry, I can't assist with that."
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "refusal": said}]
    found, _ = read(tmp_path, {"messages": messages})
    assert shape(found)[-1] == ("assistant", said, [])
    facts = facts_of(found)
    assert (facts.counts["void_turns"], facts.counts["empty_answers"], facts.marks["refusals"]) == (0, 0, 1)
    messages[1] |= {"content": "Here.", "refusal": None}
    assert shape(read(tmp_path, {"messages": messages})[0])[-1][1] == "Here."


def test_custom_tools_have_a_name_and_free_text(tmp_path):
    call = {"id": "1", "type": "custom", "custom": {"name": "code_exec", "input": "print(1)"}}
    result = {"role": "tool", "tool_call_id": "1", "content": "1"}
    tools = [{"type": "custom", "custom": {"name": "code_exec", "description": "d"}}]
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}, result]
    found, _ = read(tmp_path, {"messages": messages, "tools": tools})
    wanted = ("assistant", None, [("code_exec", {"input": "print(1)"}, "1")])
    assert shape(found)[1] == wanted
    assert found.tools == [{"type": "function", "function": {"name": "code_exec", "description": "d"}}]
    assert facts_of(found).counts["unknown_tools"] == facts_of(found).counts["schema_errors"] == 0
    items = [
        {"role": "user", "content": "go"},
        {"type": "custom_tool_call", "call_id": "1", "name": "code_exec", "input": "print(1)"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "1"},
    ]
    assert shape(read(tmp_path, {"messages": items})[0])[1] == wanted


@pytest.mark.parametrize("agent", ["gpt", "chatgpt", "bing", "bard", "model", "assistant", "GPT"])
def test_sharegpt(tmp_path, agent):
    call = {"name": "search", "arguments": {"q": "x"}}
    said = [
        ("human", "Where?"), ("function_call", f"<think>hm</think>\n{json.dumps(call)}"), ("observation", "found"),
        (agent, "There."), ("human", "Both?"),
        ("function_call", json.dumps([call, {**call, "arguments": '{"q": "y"}'}])), ("function_response", "Error: no"), ("tool", "2"), (agent, "Yes."),
    ]  # fmt: skip
    row = {
        "conversations": [{"from": who, "value": text} for who, text in said],
        "system": "Be nice.",
        "tools": json.dumps([TOOL["function"]]),
    }
    found, report = read(tmp_path, row)
    assert shape(found) == [
        ("system", "Be nice.", []),
        ("user", "Where?", []),
        ("assistant", None, [("search", {"q": "x"}, "found")]),
        ("assistant", "There.", []),
        ("user", "Both?", []),
        ("assistant", None, [("search", {"q": "x"}, "Error: no"), ("search", {"q": "y"}, "2")]),
        ("assistant", "Yes.", []),
    ]
    assert found.turns[2].reasoning == "hm"
    assert [call.error for call in found.calls] == ["", "Error: no", ""]
    assert found.tools == [TOOL]
    assert not report.notes
    counts = facts_of(found).counts
    assert (counts["turns"], counts["unknown_tools"], counts["schema_errors"]) == (4, 0, 0)


def test_sharegpt_with_its_own_system_no_tools_and_a_call_that_is_none(tmp_path):
    said = [
        ("system", "a"),
        ("human", "b"),
        ("function_call", "search(x)"),
        ("observation", "c"),
        ("critic", "d"),
    ]
    row = {"system": "z", "tools": "", "conversations": [{"from": who, "value": text} for who, text in said]}
    found, report = read(tmp_path, row)
    assert [(t.role, t.content) for t in found.turns] == [("system", "a"), ("user", "b"), ("assistant", None), ("critic", "d")]  # fmt: skip
    (call,) = found.calls
    assert (call.bad_arguments, call.result, call.error_from) == ("search(x)", "c", "parse")
    assert found.tools is None
    assert report.notes == {
        "calls that are no JSON, kept as text": 1,
        "messages of a role that is none of ours, kept: critic": 1,
    }


def gemini(call="functionCall", response="functionResponse", **result):
    result = result or {"result": "found"}
    return [
        {"role": "user", "parts": [{"text": "Where?"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "I look."}, {call: {"name": "search", "args": {"q": "x"}}, "thoughtSignature": "Zz"}]},
        {"role": "user", "parts": [{response: {"name": "search", "response": result}}]},
        {"role": "model", "parts": [{"text": "There."}]},
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["contents", "messages"])
@pytest.mark.parametrize(
    ("call", "response"), [("functionCall", "functionResponse"), ("function_call", "function_response")]
)
def test_gemini(tmp_path, field, call, response):
    typed = {"type": "OBJECT", "properties": {"q": {"type": "STRING"}}, "required": ["q"]}
    row = {
        field: gemini(call, response),
        "systemInstruction": {"parts": [{"text": "Be nice."}]},
        "tools": [{"functionDeclarations": [{**TOOL["function"], "parameters": typed}]}],
    }
    found, report = read(tmp_path, row)
    assert shape(found) == [("system", "Be nice.", []), *CALLED]
    assert found.turns[2].reasoning == "hm"
    assert found.tools == [TOOL]
    assert facts_of(found).counts["unknown_tools"] == 0
    assert not report.notes
    roles = [m["role"] for m in messages_of(found)]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("response", "result", "error", "source"),
    [
        ({"output": "found"}, "found", "", ""), ({"rows": 3, "error": None}, '{"rows": 3, "error": null}', "", ""), ({"error": "no seats"}, "no seats", "no seats", "log"),
        ({"error": "no seats", "code": 5}, '{"error": "no seats", "code": 5}', "no seats", "text"), ({"result": "Error: x"}, "Error: x", "Error: x", "text"),
    ],
)  # fmt: skip
def test_results_of_gemini(tmp_path, response, result, error, source):
    (call,) = read(tmp_path, {"contents": gemini(**response)})[0].calls
    assert (call.result, call.error, call.error_from) == (result, error, source)


def test_gemini_as_python_dumps_it_with_code_and_an_image(tmp_path):
    none = dict.fromkeys(
        ("text", "function_call", "inline_data", "thought", "executable_code", "code_execution_result")
    )
    parts = [
        {**none, "executable_code": {"code": "1/0", "language": "PYTHON"}},
        {**none, "code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
        {**none, "text": "It fails."},
        {**none, "inline_data": {"mime_type": "image/png", "data": "aa"}},
        {**none, "newer": {"a": 1}},
    ]
    messages = [{"role": "user", "parts": "go"}, {"role": "model", "parts": parts}]
    found, report = read(tmp_path, {"contents": messages})
    assert found.turns[0].content == "go"
    (call,) = found.calls
    assert (call.name, call.arguments["code"]) == ("code_execution", "1/0")
    assert (call.error, call.error_from) == ("ZeroDivisionError", "log")
    assert found.turns[2].content.startswith("It fails.[inline_data blake2b:")
    assert found.turns[2].content.count("[newer blake2b:") == 1
    assert report.notes == {"parts of messages that are no text, written as [kind]": 2}


def bedrock(content, **result):
    use = {"toolUseId": "t", "name": "search", "input": {"q": "x"}}
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    return [
        {"role": "user", "content": [{"text": "Where?"}, {"cachePoint": {"type": "default"}}]},
        {"role": "assistant", "content": [thought, {"text": "I look."}, {"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": content, **result}}]},
        {"role": "assistant", "content": [{"text": "There."}]},
    ]


def test_bedrock(tmp_path):
    spec = {"toolSpec": {**TOOL["function"], "inputSchema": {"json": SCHEMA}}}
    del spec["toolSpec"]["parameters"]
    row = {
        "messages": bedrock([{"text": "found"}]),
        "system": [{"text": "Be nice."}],
        "toolConfig": {"tools": [spec]},
    }
    found, report = read(tmp_path, row)
    assert shape(found) == [("system", "Be nice.", []), *CALLED]
    assert found.turns[2].reasoning == "hm"
    assert found.tools == [TOOL]
    assert not report.notes


@pytest.mark.parametrize(
    ("content", "fields", "result", "error"),
    [
        ([{"text": "no seats"}], {"status": "error"}, "no seats", "no seats"), ([{"text": "Error: a file"}], {"status": "success"}, "Error: a file", ""),
        ([{"json": {"rows": 3}}], {}, '{"rows": 3}', ""), ([{"json": {"error": "late"}}], {}, '{"error": "late"}', "late"), ([{"text": "a"}, {"text": "b"}], {}, "ab", ""), ([], {}, "", ""),
    ],
)  # fmt: skip
def test_results_of_bedrock(tmp_path, content, fields, result, error):
    (call,) = read(tmp_path, {"messages": bedrock(content, **fields)})[0].calls
    assert (call.result, call.error) == (result, error)


@pytest.mark.parametrize("content", [[{"a": 1}], [{"text": "x", "user": "b"}], [{"image": "a.png"}], [{"text": 3}], [1, {"text": "x"}]])  # fmt: skip
def test_other_json_in_a_result_stays_json(tmp_path, content):
    messages = [
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": content},
    ]
    (call,) = read(tmp_path, {"messages": messages})[0].calls
    assert json.loads(call.result) == content


def test_parts_that_are_new_in_bedrock_lose_no_calls(tmp_path):
    cited = {"content": [{"text": "It is "}, {"text": "there."}], "citations": [{"title": "a"}]}
    messages = bedrock([{"text": "found"}])
    messages[0]["content"].append({"guardContent": {"text": {"text": "x"}}})
    messages[1]["content"].append({"newContent": {"a": 1}})
    messages[2]["content"].append({"searchResult": {"title": "b"}})
    messages[3]["content"] = [{"citationsContent": cited}]
    found, report = read(tmp_path, {"messages": messages})
    (call,) = found.calls
    assert (call.name, call.result) == ("search", "found")
    said = [(turn.role, turn.content.split(" blake2b:")[0]) for turn in found.turns]
    assert said == [("user", "Where?[guardContent"), ("assistant", "I look.[newContent"), ("user", "[searchResult"), ("assistant", "It is there.")]  # fmt: skip
    assert report.notes == {"parts of messages that are no text, written as [kind]": 3}


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_other_json_with_no_part_of_a_known_kind_stays_json(tmp_path, role):
    content = [{"guard": {"a": 1}}, {"citationsContent": 3}, "x"]
    found, _ = read(tmp_path, {"messages": [{"role": role, "content": content}]})
    assert json.loads(found.turns[0].content) == content


@pytest.mark.parametrize(("who", "text"), [("role", "content"), ("from", "value")])
def test_roles_in_capitals_and_with_blanks(tmp_path, who, text):
    call = {"id": "1", "function": {"name": "search", "arguments": {"q": "x"}}}
    messages = [
        {who: "System", text: "a"}, {who: " User ", text: "Where?"}, {who: "ASSISTANT", text: "I look.", "tool_calls": [call]},
        {who: "TOOL", text: "found", "tool_call_id": "1"}, {who: "Assistant\n", text: "There."},
    ]  # fmt: skip
    found, report = read(tmp_path, {"messages": messages, "system": "z"})
    assert shape(found) == [("system", "a", []), *CALLED]
    assert not report.notes


def test_a_result_that_is_nothing_but_a_picture_is_no_json(tmp_path):
    (call,) = read(tmp_path, {"messages": bedrock([{"image": {"format": "png", "source": {"bytes": "aa"}}}])})[0].calls  # fmt: skip
    assert call.result.startswith("[image blake2b:")
    picture = {"role": "function", "parts": [{"inlineData": {"mimeType": "image/png", "data": "aa"}}]}
    (turn,) = read(tmp_path, {"contents": [picture]})[0].turns
    assert (turn.role, turn.content.split(" ")[0]) == ("tool", "[inlineData")
