"""Items of OpenAI's Responses API: an answer in items is one turn, the provider's own tools are calls, and what is unknown is counted."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import write_lines
from trimtab.traces.export import export
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of


def read(tmp_path, messages, **fields):
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [{"messages": messages, **fields}])])
    return found, dict(report.notes)


def shape(episode):
    return [(t.role, t.content, [(c.name, c.arguments, c.result) for c in t.calls]) for t in episode.turns]


ASK = {"role": "user", "content": [{"type": "input_text", "text": "Paris and Rome?"}]}


def thought(*texts, **more):
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": t} for t in texts], **more}  # fmt: skip


def call(number, city, **more):
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"c{number}", "name": "weather", "arguments": json.dumps({"city": city}), **more}  # fmt: skip


def output(number, text):
    return {"type": "function_call_output", "call_id": f"c{number}", "output": text}


def said(text, **more):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content, **more}


TWO = [("weather", {"city": "Paris"}, "18"), ("weather", {"city": "Rome"}, "Error: no")]


def test_an_answer_in_items_is_one_turn_with_its_calls(tmp_path):
    items = [ASK, thought("hm"), said("I look."), call(1, "Paris"), call(2, "Rome"), output(2, "Error: no"), output(1, "18"), thought("so"), said("18.")]  # fmt: skip
    found, notes = read(tmp_path, items)
    assert shape(found) == [
        ("user", "Paris and Rome?", []),
        ("assistant", "I look.", TWO),
        ("assistant", "18.", []),
    ]
    assert [(t.step, t.reasoning) for t in found.turns] == [(0, None), (1, "hm"), (7, "so")]
    assert [c.step for c in found.calls] == [1, 1]
    assert facts_of(found).counts["void_turns"] == 0
    assert notes == {}


@pytest.mark.parametrize("null", [{}, {"role": None, "content": None, "summary": None}])
def test_a_row_to_train_on_has_the_calls_together_and_then_their_results(tmp_path, null):
    """Also as Parquet has items, with the fields of the others as nulls."""
    items = [ASK, call(1, "Paris", **null), call(2, "Rome", **null), output(2, "Error: no"), output(1, "18"), said("18.")]  # fmt: skip
    log = write_lines(tmp_path / "a.jsonl", [{"messages": items, "reward": 1}])
    (row,) = export([log], "sft", tmp_path / "out.jsonl").rows
    assert [m["role"] for m in row["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]
    calls = [one["function"]["arguments"] for one in row["messages"][1]["tool_calls"]]
    assert calls == [{"city": "Paris"}, {"city": "Rome"}]
    assert [m["content"] for m in row["messages"][2:4]] == ["18", "Error: no"]


def test_encrypted_reasoning_is_counted_and_empty_only_where_nothing_follows(tmp_path):
    secret = thought(encrypted_content="gAAA")
    found, notes = read(tmp_path, [ASK, secret, call(1, "Paris"), output(1, "18"), secret, said("18."), ASK, secret])  # fmt: skip
    assert [(t.role, t.content, len(t.calls)) for t in found.turns] == [
        ("user", "Paris and Rome?", 0), ("assistant", None, 1), ("assistant", "18.", 0), ("user", "Paris and Rome?", 0), ("assistant", None, 0),
    ]  # fmt: skip
    assert facts_of(found).counts["void_turns"] == 1
    assert notes == {"reasoning that the provider encrypted, left out": 3}


def test_reasoning_in_full_is_kept_where_there_is_no_summary(tmp_path):
    whole = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": None,
    }
    found, notes = read(tmp_path, [ASK, whole, said("a")])
    assert (found.turns[1].reasoning, notes) == ("hm", {})


def test_messages_of_chats_stay_turns_of_their_own(tmp_path):
    plain = [{"role": "assistant", "content": text} for text in ("a", "b")]
    called = {"role": "assistant", "content": "c", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}  # fmt: skip
    for messages in ([*plain, called], [said("a"), said("b"), called]):
        found, _ = read(tmp_path, [ASK, *messages])
        assert [t.content for t in found.turns[1:]] == ["a", "b", "c"]
    found, _ = read(tmp_path, [ASK, plain[0], call(1, "Paris"), plain[1]])
    assert shape(found)[1:] == [("assistant", "a\nb", [("weather", {"city": "Paris"}, None)])]


PICTURE = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
EXIT = [{"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 2}}]


@pytest.mark.parametrize(
    ("items", "name", "arguments", "result", "error"),
    [
        ([{"type": "mcp_call", "id": "m", "name": "ask", "arguments": '{"q": 1}', "output": "yes", "error": None}], "ask", {"q": 1}, "yes", ""),
        ([{"type": "mcp_call", "id": "m", "name": "ask", "arguments": '{"q": 1}', "output": None, "error": "boom 500"}], "ask", {"q": 1}, "", "boom 500"),
        ([{"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "error": {"type": "http_error", "code": 500, "message": "down"}}], "ask", {}, "", "down"),
        ([{"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "status": "in_progress"}], "ask", {}, None, ""),
        ([{"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}], "web_search", {"type": "search", "query": "q"}, "completed", ""),
        ([{"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "q", "sources": [{"type": "url", "url": "u"}]}}], "web_search", {"query": "q"}, '[{"type": "url", "url": "u"}]', ""),
        ([{"type": "file_search_call", "id": "f", "queries": ["a"], "results": None, "status": "failed"}], "file_search", {"queries": ["a"]}, "failed", "failed"),
        ([{"type": "file_search_call", "id": "f", "queries": ["a"], "results": [{"file_id": "f", "text": "t"}], "status": "completed"}], "file_search", {"queries": ["a"]}, '[{"file_id": "f", "text": "t"}]', ""),
        ([{"type": "code_interpreter_call", "id": "c", "code": "1+1", "container_id": "x", "outputs": [{"type": "logs", "logs": "2"}], "status": "completed"}], "code_interpreter", {"code": "1+1"}, "2", ""),
        ([{"type": "image_generation_call", "id": "i", "result": "iVBO", "revised_prompt": "a cat", "status": "completed"}], "image_generation", {"revised_prompt": "a cat"}, "[image blake2b:", ""),
        ([{"type": "local_shell_call", "id": "l", "call_id": "k", "status": "completed", "action": {"type": "exec", "command": ["ls"]}}, {"type": "local_shell_call_output", "id": "l", "call_id": "k", "output": "a.txt"}], "local_shell", {"type": "exec", "command": ["ls"]}, "a.txt", ""),
        ([{"type": "shell_call", "call_id": "k", "action": {"commands": ["ls"]}}, {"type": "shell_call_output", "call_id": "k", "output": EXIT}], "shell", {"commands": ["ls"]}, json.dumps(EXIT), "Command exited with code 2"),
        ([{"type": "apply_patch_call", "call_id": "k", "operation": {"type": "delete_file", "path": "a"}, "status": "completed"}, {"type": "apply_patch_call_output", "call_id": "k", "status": "failed", "output": "no such file"}], "apply_patch", {"type": "delete_file", "path": "a"}, "no such file", "no such file"),
        ([{"type": "computer_call", "id": "x", "call_id": "k", "action": {"type": "click", "x": 1}, "status": "completed"}, {"type": "computer_call_output", "call_id": "k", "output": PICTURE}], "computer", {"type": "click", "x": 1}, "[computer_screenshot blake2b:", ""),
        ([{"type": "mcp_approval_request", "id": "r", "server_label": "dw", "name": "ask", "arguments": "{}"}, {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}], "mcp_approval_request", {"server_label": "dw", "name": "ask", "arguments": "{}"}, '{"approve": true}', ""),
    ],
)  # fmt: skip
def test_tools_of_the_provider(tmp_path, items, name, arguments, result, error):
    found, _ = read(tmp_path, [ASK, thought("hm"), *items, said("ok")], tools=[{"type": "mcp"}])
    (made,) = found.calls
    assert (made.name, made.arguments, made.error) == (name, arguments, error)
    assert made.result.startswith(result) if result and result.endswith("blake2b:") else made.result == result
    counts = facts_of(found).counts
    assert (counts["void_turns"], counts["unknown_tools"]) == (0, 0)
    assert found.turns[1].reasoning == "hm"
    split = 1 if result is None else 2
    assert [t.content for t in found.turns[-split:]] == [None, "ok"][-split:]


def test_calls_in_a_row_that_the_provider_answered_are_a_turn_each(tmp_path):
    """It went on after each result; the client's own call among them is answered later."""
    asked = [{"type": "mcp_call", "id": f"m{i}", "name": "ask", "arguments": "{}", "output": str(i)} for i in (1, 2)]  # fmt: skip
    found, notes = read(tmp_path, [ASK, call(1, "Paris"), *asked, said("ok"), output(1, "18")])
    assert [([c.result for c in t.calls], t.content, t.step) for t in found.turns[1:]] == [(["18", "1"], None, 1), (["2"], None, 3), ([], "ok", 4)]  # fmt: skip
    assert notes == {}


def test_a_status_that_stands_for_a_result_is_counted(tmp_path):
    _, notes = read(tmp_path, [ASK, {"type": "web_search_call", "id": "w", "status": "completed"}, said("ok")])  # fmt: skip
    assert notes == {"calls of the provider's own tools whose results the log does not keep, answered by their status": 1}  # fmt: skip


def test_what_is_unknown_is_left_out_and_counted_by_its_type_or_its_keys(tmp_path):
    odd = [
        {"type": "compaction", "id": "c", "encrypted_content": "gAAA"},
        {"type": "item_reference", "id": "x"},
        {
            "type": "mcp_list_tools",
            "id": "t",
            "server_label": "dw",
            "tools": [{"name": "ask"}],
        },  # the API's act, not the agent's
        {"who": "ann", "said": "q"},
        {"said": "r", "who": "bob"},
    ]
    found, notes = read(tmp_path, [ASK, *odd, said("ok")])
    assert [t.role for t in found.turns] == ["user", "assistant"]
    assert notes == {
        "items of a kind that is none of ours, left out: compaction": 1,
        "items of a kind that is none of ours, left out: item_reference": 1,
        "items of a kind that is none of ours, left out: mcp_list_tools": 1,
        "messages with neither role nor content under a name we know, left out; their keys: said, who": 2,
    }


def test_a_log_that_begins_with_an_item_is_known(tmp_path):
    found, _ = read(tmp_path, [thought("hm"), said("ok")])
    assert (found.turns[0].reasoning, found.turns[0].content) == ("hm", "ok")
