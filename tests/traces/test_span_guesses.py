"""Tools' spans that name no call: whose result is whose among parallel calls of one tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces.spans import USER, chat, parts, read, span, tool

CALLS = [{"type": "tool_call", "id": id, "name": "w", "arguments": {"at": at}} for id, at in (("c1", "Paris"), ("c2", "Rome"))]  # fmt: skip
ASKS = parts("assistant", *CALLS)
FAILED = {"code": 2, "message": "no such city"}


def results(*texts: str) -> list[Any]:
    answers = [{"type": "tool_call_response", "id": f"c{i + 1}", "response": t} for i, t in enumerate(texts)]
    return [USER, ASKS, *(parts("tool", answer) for answer in answers)]


def seen(found) -> list[tuple[Any, ...]]:
    return [(call.arguments["at"], call.result, call.error, call.latency_s) for call in found.calls]


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        lambda at: {"gen_ai.tool.call.arguments": json.dumps({"at": at})},
        lambda at: {"input.value": str({"at": at})},  # LangChain
        lambda at: {"input.value": json.dumps({"args": [], "kwargs": {"at": at}})},  # smolagents
    ],
)
def test_arguments_tell_which_of_two_calls_a_span_answers(tmp_path, given, later):
    spans = [
        chat("a", 1, [USER], [ASKS]),
        tool("a", 4, 0.5, "w", status=FAILED, **given("Rome"), **{"gen_ai.tool.call.result": "no"}),
        tool("a", 4.1, 2, "w", **given("Paris"), **{"gen_ai.tool.call.result": "18"}),
        chat("a", 7, results("18", "no"), [parts("assistant", "Done.")]),
    ]
    (found,), report = read(tmp_path, *(spans if later else spans[:3]))
    assert seen(found) == [("Paris", "18", "", 2.0), ("Rome", "no", "no such city", 0.5)]
    assert not report.notes


def test_the_next_request_puts_a_guess_right_and_the_time_goes_with_its_span(tmp_path):
    spans = [
        chat("a", 1, [USER], [ASKS]),
        tool("a", 4, 0.5, "w", status=FAILED, **{"gen_ai.tool.call.result": "no"}),
        tool("a", 4.1, 2, "w", **{"gen_ai.tool.call.result": "18"}),
        chat("a", 7, results("18", "no"), [parts("assistant", "Done.")]),
    ]
    (found,), report = read(tmp_path, *spans)
    assert seen(found) == [("Paris", "18", "", 2.0), ("Rome", "no", "no such city", 0.5)]
    assert [turn.role for turn in found.turns] == ["user", "assistant", "assistant"]
    assert not report.notes


@pytest.mark.parametrize("given", [{}, {"input.value": '{"at": "Rome"}'}])
def test_a_call_that_had_no_span_keeps_the_result_of_its_id(tmp_path, given):
    spans = [
        chat("a", 1, [USER], [ASKS]),
        tool("a", 4, 0.5, "w", status=FAILED, **given, **{"gen_ai.tool.call.result": "no"}),
        chat("a", 7, results("18", "no"), [parts("assistant", "Done.")]),
    ]
    (found,), report = read(tmp_path, *spans)
    assert seen(found) == [("Paris", "18", "", None), ("Rome", "no", "no such city", 0.5)]
    assert not report.notes


def test_a_guess_that_no_request_repeats_is_left_out_and_counted(tmp_path):
    spans = [
        chat("a", 1, [USER], [ASKS]),
        tool("a", 4, 0.5, "w", status=FAILED, **{"gen_ai.tool.call.result": "cut of"}),
        chat("a", 7, results("18", "no"), [parts("assistant", "Done.")]),
    ]
    (found,), report = read(tmp_path, *spans)
    assert seen(found) == [("Paris", "18", "", None), ("Rome", "no", "", None)]
    assert report.notes == {
        "results of tools' spans without a call's id that no request repeats, left out": 1
    }


def test_a_guess_between_no_others_keeps_its_time_and_takes_the_text_of_its_id(tmp_path):
    asks = parts("assistant", CALLS[0])
    answer = {"type": "tool_call_response", "id": "c1", "response": "18 degrees"}
    spans = [
        chat("a", 1, [USER], [asks]),
        tool("a", 4, 0.5, "w", **{"gen_ai.tool.call.result": "18 deg"}),
        chat("a", 7, [USER, asks, parts("tool", answer)], [parts("assistant", "Done.")]),
    ]
    (found,), _ = read(tmp_path, *spans)
    assert seen(found) == [("Paris", "18 degrees", "", 0.5)]


def test_results_in_another_order_than_their_spans_are_no_changed_messages(tmp_path):
    history = [*results("18", "no"), parts("assistant", "Done."), parts("user", "And Bonn?")]
    spans = [
        chat("a", 1, [USER], [ASKS]),
        tool("a", 4, 2, "w", **{"gen_ai.tool.call.id": "c2", "gen_ai.tool.call.result": "no"}),
        tool("a", 4.5, 1, "w", **{"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "18"}),
        chat("a", 7, history[:-2], [history[-2]]),
        chat("a", 9, history, [parts("assistant", "Dry.")]),
    ]
    (found,), report = read(tmp_path, *spans)
    assert [turn.content for turn in found.turns] == ["Weather?", None, "Done.", "And Bonn?", "Dry."]
    assert not report.notes


def test_openllmetrys_flat_calls_are_those_of_their_spans(tmp_path):
    flat = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Weather?", "gen_ai.completion.0.role": "assistant"}  # fmt: skip
    for i, at in enumerate(("Paris", "Rome")):
        arguments = json.dumps({"at": at})
        flat |= {f"gen_ai.completion.0.tool_calls.{i}.{k}": v for k, v in (("id", f"c{i}"), ("name", "w"), ("arguments", arguments))}  # fmt: skip
    worked = [
        span(
            "a", 5 - i, 0.5, name="w.tool",
            **{"traceloop.span.kind": "tool", "traceloop.entity.name": "w"},
            **{"traceloop.entity.input": json.dumps({"args": [], "kwargs": {"at": at}}), "traceloop.entity.output": json.dumps(said)},
        )
        for i, (at, said) in enumerate((("Paris", "18"), ("Rome", "21")))
    ]  # fmt: skip
    (found,), report = read(tmp_path, span("a", 1, 2, **{"llm.request.type": "chat", **flat}), *worked)
    assert [(call.name, call.arguments, call.result) for call in found.calls] == [
        ("w", {"at": "Paris"}, "18"),
        ("w", {"at": "Rome"}, "21"),
    ]
    assert not report.notes


def test_a_handoff_is_no_call_of_a_tool(tmp_path):
    """The Agents SDK's, as OpenInference writes it: a tool's span without input and output."""
    passed = {"type": "tool_call", "id": "h", "name": "transfer_to_refunds", "arguments": {}}
    spans = [
        chat("a", 1, [USER], [parts("assistant", passed)]),
        span("a", 3.5, 0, name="handoff to refunds", **{"openinference.span.kind": "TOOL"}),
    ]
    (found,), report = read(tmp_path, *spans)
    assert [call.name for call in found.calls] == ["transfer_to_refunds"]
    assert report.notes == {"spans of a handoff, which are no call of a tool, left out": 1}
    named = {"openinference.span.kind": "TOOL", "input.value": '{"to": "x"}', "output.value": "ok"}
    (found,), _ = read(tmp_path, spans[0], span("a", 3.5, 0, name="handoff to desk", **named))
    assert [call.name for call in found.calls] == ["transfer_to_refunds", "handoff to desk"]
