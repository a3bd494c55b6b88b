"""What stands beside a record's messages: tools by name, system prompts, responses; and text in fields of its own."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import chat, write_lines
from trimtab.traces.export import ExportOptions, export
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of


def read(tmp_path, **row):
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [row])])
    return found, dict(report.notes)


ASK = {"role": "user", "content": "Where?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}


@pytest.mark.parametrize(("tools", "unknown"), [(["search", " g "], 0), (["g"], 1), (['{"name": "search"}', "g"], 0), ('["search"]', 0), ([3, None], 0), ({"search": {}}, 0)])  # fmt: skip
def test_tools_told_by_their_names(tmp_path, tools, unknown):
    found, notes = read(tmp_path, tools=tools, messages=chat())
    assert facts_of(found).counts["unknown_tools"] == unknown
    if tools in ([3, None], {"search": {}}):
        assert found.tools is None
        assert notes == {"tools that are neither schemas nor names, ignored": 1}
    else:
        assert {"search", "g"} >= {tool["function"]["name"] for tool in found.tools}
        assert notes == {}
    assert facts_of(found).checked == 0  # no schema says what arguments they take


def test_schemas_of_a_file_fill_in_for_names(tmp_path):
    """Where a name is all that the log has of a tool; without the file the card warns that no template can tell the model of it."""
    schema = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    (file := tmp_path / "tools.json").write_text(json.dumps([schema]))
    log = write_lines(tmp_path / "a.jsonl", [{"tools": ["search", "g"], "messages": chat(), "reward": 1}])
    named = {"type": "function", "function": {"name": "g"}}
    made = export([log], "sft", tmp_path / "out.jsonl", ExportOptions(tools=file))
    assert (made.rows[0]["tools"], made.card["warnings"]) == ([schema, named], [])
    made = export([log], "sft", tmp_path / "out.jsonl")
    assert made.rows[0]["tools"][1] == named
    assert made.card["warnings"][0].startswith("1 of 1 episodes with calls have no tool schemas")


@pytest.mark.parametrize(("kind", "tools"), [("sft", []), ("sft", [3]), ("kto", []), ("dpo", []), ("grpo", []), ("steps", [])])  # fmt: skip
def test_no_export_declares_an_empty_list_of_tools(tmp_path, kind, tools):
    rows = [{"task_id": "t", "tools": tools, "reward": r, "messages": [ASK, {"role": "assistant", "content": f"{r} is it"}]} for r in (0.0, 1.0)]  # fmt: skip
    made = export([write_lines(tmp_path / "a.jsonl", rows)], kind, tmp_path / "out.jsonl")
    assert made.rows
    assert all(row["tools"] is None for row in made.rows)


@pytest.mark.parametrize(
    ("row", "system"),
    [
        ({"system_prompt": "Be nice."}, "Be nice."), ({"instructions": "Be nice."}, "Be nice."), ({"system": "Be nice.", "system_prompt": "no"}, "Be nice."),
        ({"system_prompt": ["a"]}, None), ({"config": {"system_instruction": "no"}}, None), ({"config": "x"}, None),
    ],
)  # fmt: skip
def test_system_prompts_of_other_names(tmp_path, row, system):
    found, _ = read(tmp_path, messages=[ASK], **row)
    assert [t.content for t in found.turns] == [*([system] if system else []), "Where?"]
    for role in ("system", "developer"):
        if "system" not in row and "config" not in row:
            found, _ = read(tmp_path, messages=[{"role": role, "content": "first"}, ASK], **row)
            assert [t.content for t in found.turns] == ["first", "Where?"]


@pytest.mark.parametrize("system", [{"system_instruction": "Be nice."}, {"systemInstruction": {"parts": [{"text": "Be nice."}]}}])  # fmt: skip
def test_tools_and_system_prompt_in_geminis_config(tmp_path, system):
    tools = [{"function_declarations": [{"name": "w", "parameters": {"type": "OBJECT"}}]}]
    asked = [{"role": "user", "parts": [{"text": "a"}]}]
    found, _ = read(tmp_path, contents=asked, config={"tools": tools, **system})
    assert [t.content for t in found.turns] == ["Be nice.", "a"]
    assert read(tmp_path, messages=[ASK], config={"tools": ["AClassOfTheirs"]})[0].tools is None
    assert found.tools == [{"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}]


SAID = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
CHOICES = {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": SAID}, {"index": 1, "message": {"role": "assistant", "content": "No."}}]}  # fmt: skip
ITEMS = [{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}, {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q": "x"}'}]  # fmt: skip
BLOCKS = [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "x"}}]  # fmt: skip


@pytest.mark.parametrize(
    ("response", "stop", "others"),
    [
        (CHOICES, "tool_calls", 1), ({"response": CHOICES}, "tool_calls", 1), ({"response": {"output": ITEMS}}, None, 0),
        ({"response": {"output": ITEMS, "incomplete_details": {"reason": "max_output_tokens"}}}, "max_output_tokens", 0),
        ({"response": {"type": "message", "role": "assistant", "content": BLOCKS, "stop_reason": "tool_use"}}, "tool_use", 0),
        ({"response": {"candidates": [{"content": {"role": "model", "parts": [{"text": "I look."}, {"functionCall": {"id": "c1", "name": "search", "args": {"q": "x"}}}]}, "finishReason": "STOP"}]}}, "STOP", 0),
    ],
)  # fmt: skip
def test_the_response_to_the_messages_is_the_last_of_them(tmp_path, response, stop, others):
    told = {"further choices of a response, left out": 1} if others else {}
    answered = [ASK, SAID, {"role": "tool", "tool_call_id": "c1", "content": "found"}]
    for messages in ([ASK], [ASK, SAID], answered, [*answered, ASK]):
        found, notes = read(tmp_path, messages=messages, reward=1, **response)
        turns = [(t.role, t.content, [(c.name, c.arguments) for c in t.calls]) for t in found.turns]
        assert turns[-1] == ("assistant", "I look.", [("search", {"q": "x"})])
        assert len(turns) == (4 if messages[-1] == ASK and len(messages) > 1 else 2)
        assert (found.stop_reason, notes) == (stop, told)
    assert facts_of(read(tmp_path, messages=[ASK], reward=1, **response)[0]).counts["unanswered"] == 0


def test_a_response_in_plain_words_answers_what_is_asked_last(tmp_path):
    found, _ = read(tmp_path, messages=[ASK], response="There.")
    assert [(turn.role, turn.content) for turn in found.turns[1:]] == [("assistant", "There.")]
    asked = [ASK, {"role": "assistant", "content": "Here."}]
    for response in ("There.", " ", '{"status": "ok"}'):
        found, _ = read(tmp_path, messages=asked, response=response)
        assert [turn.content for turn in found.turns[1:]] == ["Here."]


@pytest.mark.parametrize("response", [None, [], {}, {"choices": []}, {"choices": [3]}, {"output": "x"}, {"content": 3}])  # fmt: skip
def test_a_response_without_an_answer_adds_nothing(tmp_path, response):
    found, notes = read(tmp_path, messages=[ASK], response=response)
    assert ([t.content for t in found.turns], notes) == (["Where?"], {})


EMPTY = [[], [None], [""], {}, [{}], [{"type": "text"}], [{"type": "text", "text": None}]]


@pytest.mark.parametrize("content", EMPTY)
def test_an_answer_that_says_nothing_is_empty(tmp_path, content):
    messages = [*chat()[:3], {"role": "assistant", "content": content}]
    found, notes = read(tmp_path, messages=messages)
    counts = facts_of(found).counts
    assert (counts["void_turns"], counts["empty_answers"], found.turns[-1].content or None, notes) == (1, 1, None, {})  # fmt: skip
    messages[2]["content"] = []
    assert read(tmp_path, messages=messages)[0].calls[0].result == "[]"  # of a tool it is what came back


def test_speech_and_reasoning_in_fields_of_their_own(tmp_path):
    details = [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.summary", "summary": "so"}, {"type": "reasoning.encrypted", "data": "gA"}]  # fmt: skip
    messages = [ASK, {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hello"}}, ASK, {"role": "assistant", "content": "b", "reasoning_details": details}]  # fmt: skip
    found, notes = read(tmp_path, messages=messages)
    assert [(t.content, t.reasoning) for t in found.turns if t.role == "assistant"] == [("hello", None), ("b", "hm\nso")]  # fmt: skip
    assert notes == {"reasoning that the provider encrypted, left out": 1}
