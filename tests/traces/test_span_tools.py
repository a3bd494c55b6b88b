"""Tool results in spans as OpenLLMetry 0.62, OpenInference for LangChain 0.1.80 and for the Agents SDK 2.6 write them."""

from __future__ import annotations

import json

import pytest

from tests.traces.make import write_lines
from tests.traces.samples import _span
from trimtab.traces.read import read_episodes


def read(tmp_path, *spans):
    log = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
    (episode,), report = read_episodes([write_lines(tmp_path / "spans.jsonl", [log])])
    return episode, report


def model(start, asked, said):
    return _span(
        start, start + 1,
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps([said])},
    )  # fmt: skip


def text(role, words):
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def called(id):
    return {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": id, "name": "search", "arguments": {}}],
    }


def result(id, words):
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": words}]}


def test_a_result_under_an_id_that_no_call_has_is_the_oldest_open_calls(tmp_path):
    """The Responses API has two ids; OpenLLMetry writes that of the item at the call, that of the call at its result."""
    first = [text("user", "?")]
    second = [*first, called("fc_1"), result("call_1", "one")]
    third = [*second, called("fc_2"), result("call_2", "two")]
    episode, report = read(
        tmp_path, model(1, first, called("fc_1")), model(3, second, called("fc_2")), model(5, third, text("assistant", "Done."))
    )  # fmt: skip
    assert [(call.id, call.result) for call in episode.calls] == [("fc_1", "one"), ("fc_2", "two")]
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "assistant", "assistant"]
    assert report.notes["results whose id no call has, given to the oldest open call"] == 2


def test_a_result_that_a_tools_span_gave_comes_again_under_another_id(tmp_path):
    first = [text("user", "?")]
    tool = _span(3, 5, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.result": "one"})  # fmt: skip
    second = [*first, called("fc_1"), result("call_1", "one")]
    episode, _ = read(
        tmp_path, model(1, first, called("fc_1")), tool, model(6, second, text("assistant", "Done."))
    )
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "assistant"]
    assert [(call.result, call.latency_s) for call in episode.calls] == [("one", 2.0)]


@pytest.mark.parametrize(
    "wrap", [lambda m: m, lambda m: {"type": "tool", "data": m}, lambda m: {"kwargs": m}]
)
def test_langchains_message_is_unwrapped(tmp_path, wrap):
    message = {"content": "no backend", "name": "search", "tool_call_id": "b", "status": "error"}
    asks = {"role": "assistant", "parts": [called("a")["parts"][0], called("b")["parts"][0]]}
    tool = _span(3, 4, {"openinference.span.kind": "TOOL", "tool.name": "search", "output.value": json.dumps(wrap(message))})  # fmt: skip
    episode, _ = read(tmp_path, model(1, [text("user", "?")], asks), tool)
    one, two = episode.calls
    assert (one.result, one.error) == (None, "")
    assert (two.result, two.error, two.error_from) == ("no backend", "no backend", "log")


def test_what_smolagents_tells_again_in_roles_of_its_own_makes_no_turns(tmp_path):
    first = [text("user", "?")]
    second = [*first, text("tool-call", "Calling tools: search"), text("tool-response", "Observation: one")]
    third = [*second, text("tool-call", "Calling tools: search"), text("tool-response", "Observation: two")]
    tool = {"openinference.span.kind": "TOOL", "tool.name": "search"}
    episode, report = read(
        tmp_path,
        model(1, first, called("a")), _span(3, 4, {**tool, "output.value": "one"}), model(5, second, called("b")),
        _span(7, 8, {**tool, "output.value": "two"}), model(9, third, text("assistant", "Done.")),
    )  # fmt: skip
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "assistant", "assistant"]
    assert [(call.id, call.result) for call in episode.calls] == [("a", "one"), ("b", "two")]
    assert sum(report.notes.values()) == 3  # the call is told in the same words twice


def test_json_that_is_no_message_stays_the_result(tmp_path):
    tool = _span(3, 4, {"openinference.span.kind": "TOOL", "tool.name": "search", "output.value": '{"data": {"content": 1}}'})  # fmt: skip
    episode, _ = read(tmp_path, tool)
    assert episode.calls[0].result == '{"data": {"content": 1}}'


def test_a_schema_in_a_tools_span_is_the_tools_and_not_what_it_was_given(tmp_path):
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    told = {"openinference.span.kind": "TOOL", "tool.name": "search", "tool.description": "Looks."}
    episode, _ = read(tmp_path, _span(1, 2, {**told, "tool.parameters": json.dumps(schema)}))
    assert episode.calls[0].arguments is None
    assert episode.tools == [
        {"type": "function", "function": {"name": "search", "description": "Looks.", "parameters": schema}}
    ]
    given, _ = read(tmp_path, _span(1, 2, {**told, "tool.parameters": '{"q": "x"}'}))
    assert (given.calls[0].arguments, given.tools) == ({"q": "x"}, None)
