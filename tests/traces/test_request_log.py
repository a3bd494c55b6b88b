"""Requests to a model with their responses, of which each repeats the conversation so far. The records have the fields of
`autogen_core.logging.LLMCallEvent` and `ToolCallEvent` (0.7.5), and of OpenAI's and Anthropic's responses."""

from __future__ import annotations

import random

import pytest

from tests.traces.make import write_lines
from trimtab.traces.read import read_episodes
from trimtab.traces.readers import request_log


def openai(messages, answer):
    plain = {"content": None, "refusal": None, "annotations": None, **answer}
    response = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": plain}],
        "usage": {},
    }
    return {
        "type": "LLMCall",
        "messages": messages,
        "response": response,
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "agent_id": "a",
    }


def anthropic(messages, answer):
    blocks = [{"type": "text", "text": answer["content"]}] if answer.get("content") else []
    blocks += [
        {"type": "tool_use", "id": one["id"], "name": one["function"]["name"], "input": {"a": one["id"]}}
        for one in answer.get("tool_calls", ())
    ]
    return {
        "system": "Be nice.",
        "messages": messages,
        "response": {"content": blocks, "stop_reason": "end_turn"},
    }


def conversation(name, rounds, make):
    """Its requests, one a call and one for the last answer, and what is said in each."""
    messages, requests = [{"role": "user", "content": f"Question {name}?"}], []
    for i in range(rounds):
        call = {
            "id": f"{name}{i}",
            "type": "function",
            "function": {"name": "f", "arguments": f'{{"a": "{name}{i}"}}'},
        }
        answer = {"role": "assistant", "tool_calls": [call]}
        requests.append(make(list(messages), answer))
        bad = "Error: boom" if i % 2 else "ok"
        if make is openai:
            messages += [
                answer | {"content": None},
                {"role": "tool", "tool_call_id": call["id"], "content": bad},
            ]
        else:
            blocks = requests[-1]["response"]["content"]
            result = {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": bad,
                "is_error": bool(i % 2),
            }
            messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    requests.append(make(list(messages), {"role": "assistant", "content": "Done."}))
    return requests


@pytest.mark.parametrize("make", [openai, anthropic])
def test_a_conversation_is_one_episode_however_often_it_is_repeated(tmp_path, make):
    rng, waiting, rows = random.Random(0), [conversation(name, 4, make) for name in "abc"], []
    while waiting := [requests for requests in waiting if requests]:
        rows.append(rng.choice(waiting).pop(0))
        rows.append({"type": "ToolCall", "tool_name": "f", "arguments": {}, "result": "ok", "agent_id": "a"})
    episodes, report = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert set(report.formats.values()) == {"requests"}
    assert sorted([call.arguments["a"] for call in one.calls] for one in episodes) == [
        [f"{name}{i}" for i in range(4)] for name in "abc"
    ]
    assert [[bool(call.error) for call in one.calls] for one in episodes] == [[False, True, False, True]] * 3
    assert [one.turns[-1].content for one in episodes] == ["Done."] * 3
    assert report.notes["requests to a model that a later one goes on with, read once"] == 12
    assert report.notes["records between requests to a model, left out: ToolCall"] == 15
    assert report.num_malformed == 0


def test_attempts_that_begin_alike_stay_apart(tmp_path):
    first, second = conversation("a", 1, openai), conversation("a", 1, openai)
    other = openai(first[1]["messages"], {"role": "assistant", "content": "Another end."})
    rows = [first[0], second[0], first[1], second[1], other]
    episodes, _ = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [(len(one.calls), one.turns[-1].content) for one in episodes] == [
        (1, "Done."),
        (1, "Done."),
        (1, "Another end."),
    ]


def test_single_requests_are_episodes_and_the_oldest_are_taken_for_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "MAX_OPEN", 3)
    rows = [
        openai([{"role": "user", "content": str(i)}], {"role": "assistant", "content": "a"}) for i in range(9)
    ]
    episodes, report = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert [one.turns[0].content for one in episodes] == [str(i) for i in range(9)]
    assert not report.notes


def test_a_record_that_holds_more_than_the_request_is_still_a_chat(tmp_path):
    """A set whose `response` is text is one of rows, each of which counts."""
    chat = [{"role": "user", "content": "a"}]
    rows = [
        {"messages": chat, "response": "b"},
        {"messages": [*chat, {"role": "assistant", "content": "b"}, *chat], "response": "c"},
    ]
    episodes, report = read_episodes([write_lines(tmp_path / "a.jsonl", rows)])
    assert (len(episodes), set(report.formats.values())) == (2, {"messages"})
