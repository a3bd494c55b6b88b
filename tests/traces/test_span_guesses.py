"""Tools' spans that name no call: whose result is whose among parallel calls of one tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces.spans import USER, chat, parts, read, tool

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
