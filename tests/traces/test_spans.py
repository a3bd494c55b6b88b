"""OpenTelemetry spans to episodes: times, conversations, inputs that repeat the history, and both conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces import samples
from tests.traces.make import write_lines
from tests.traces.spans import ANSWER, CALL, USER, chat, parts, read, span, tool
from trimtab.traces.read import read_episodes


def test_times_of_today_are_read_to_the_nanosecond_and_order_the_spans(tmp_path):
    called = chat("a", 1, [USER], [parts("assistant", "I look.")])
    worked = tool("a", 4, 1.5, **{"gen_ai.tool.call.result": "rainy"})
    ended = chat("a", 6, [], [parts("assistant", "Rainy.")])
    (found,), _ = read(tmp_path, ended, worked, called)  # last written first
    assert [turn.content for turn in found.turns] == ["Weather?", "I look.", "Rainy."]
    assert found.calls[0].latency_s == 1.5
    assert found.time == pytest.approx(1_763_740_005, abs=1e-6)
    assert found.duration_s == 7.0


def test_a_conversation_in_three_turns_keeps_every_message_and_what_the_model_was_told(tmp_path):
    system = json.dumps([{"type": "text", "content": "Be helpful."}])
    offered = json.dumps(
        [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}]
    )
    history: list[Any] = []
    spans = []
    for turn, text in enumerate(("Book.", "Book.", "Thanks.")):  # the second user message repeats the first
        history = [*history, parts("user", text)]
        said = parts("assistant", {"type": "reasoning", "content": "hmm"}, f"answer {turn}")
        named = {
            "gen_ai.conversation.id": "c",
            "gen_ai.system_instructions": system,
            "gen_ai.tool.definitions": offered,
        }
        spans.append(chat(str(turn), 10 * turn, history, [said | {"finish_reason": "stop"}], **named))
        history = [*history, parts("assistant", f"answer {turn}")]
    (found,), report = read(tmp_path, *spans)
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "Be helpful."), ("user", "Book."), ("assistant", "answer 0"), ("user", "Book."), ("assistant", "answer 1"),
        ("user", "Thanks."), ("assistant", "answer 2"),
    ]  # fmt: skip
    assert found.turns[2].reasoning == "hmm"
    assert found.tools is not None
    assert [tool["function"]["name"] for tool in found.tools] == ["get_weather"]
    assert (found.id, found.stop_reason, found.duration_s) == ("c", "stop", 22.0)
    assert not report.notes


def test_inputs_that_hold_only_what_is_new(tmp_path):
    first = chat("a", 1, [USER], [parts("assistant", CALL)], **{"gen_ai.conversation.id": "c"})
    second = chat(
        "b", 5, [parts("tool", ANSWER)], [parts("assistant", "Rainy.")], **{"gen_ai.conversation.id": "c"}
    )
    third = chat(
        "d", 9, [parts("user", "And Rome?")], [parts("assistant", "Dry.")], **{"gen_ai.conversation.id": "c"}
    )
    fourth = chat(
        "e",
        13,
        [parts("user", "And Rome?")],
        [parts("assistant", "Still dry.")],
        **{"gen_ai.conversation.id": "c"},
    )
    (found,), _ = read(tmp_path, first, second, third, fourth)
    assert [(t.role, t.content) for t in found.turns] == [
        ("user", "Weather?"), ("assistant", None), ("assistant", "Rainy."), ("user", "And Rome?"), ("assistant", "Dry."),
        ("user", "And Rome?"), ("assistant", "Still dry."),
    ]  # fmt: skip
    assert [(c.name, c.arguments, c.result) for c in found.calls] == [
        ("get_weather", {"at": "Paris"}, "rainy")
    ]


def test_a_trace_inherits_its_conversation_and_foreign_traces_are_counted(tmp_path):
    spans = []
    for i in range(3):
        conversation = {"gen_ai.conversation.id": f"conv{i}"}
        agent = {"gen_ai.operation.name": "invoke_agent", **conversation}
        spans += [
            tool(f"a{i}", 4, 1.5, id="t", parent="agent", status={"code": 2, "message": "timed out"}, **{"gen_ai.tool.call.id": "c1", "error.type": "TimeoutError"}),
            chat(f"a{i}", 1, [USER], [parts("assistant", CALL)], id="m1", parent="agent", **conversation),
            chat(f"a{i}", 6, [USER, parts("assistant", CALL), parts("tool", ANSWER)], [parts("assistant", "Rainy.")], id="m2", parent="agent", **conversation),
            span(f"a{i}", 0, 20, id="agent", name="invoke_agent Helper", **agent),
            span(f"f{i}", 7, 0.01, name="GET /health", **{"http.request.method": "GET"}),
        ]  # fmt: skip
    found, report = read(tmp_path, *spans)
    assert [e.id for e in found] == ["conv0", "conv1", "conv2"]
    for episode in found:
        (call,) = episode.calls
        assert (call.name, call.arguments, call.error, call.error_from) == (
            "get_weather",
            {"at": "Paris"},
            "timed out",
            "log",
        )
        assert (call.result, call.latency_s) == ("rainy", 1.5)  # the text only the next model span has
        assert [t.role for t in episode.turns] == ["user", "assistant", "assistant"]
    assert report.notes == {"traces without a span of a model, tool or agent, left out": 3}


def test_two_conversations_in_one_trace_follow_their_ancestors(tmp_path):
    spans = [span("a", 0, 30, id="root", name="POST /batch")]
    for i, name in enumerate(("x", "y")):
        spans += [
            chat("a", 1 + 10 * i, [USER], [parts("assistant", CALL)], id=f"m{i}", parent="root", **{"gen_ai.conversation.id": name}),
            tool("a", 4 + 10 * i, 1, id=f"t{i}", parent=f"m{i}", **{"gen_ai.tool.call.result": name}),
        ]  # fmt: skip
    found, _ = read(tmp_path, *spans)
    assert [(e.id, [c.result for c in e.calls]) for e in found] == [("x", ["x"]), ("y", ["y"])]


def test_calls_without_tool_spans_and_spans_without_content(tmp_path):
    asked = [USER, parts("assistant", CALL), parts("tool", ANSWER)]
    spans = [
        chat("a", 1, [USER], [parts("assistant", CALL) | {"finish_reason": "tool_call"}]),
        chat("a", 6, asked, [parts("assistant", "Rainy.") | {"finish_reason": "stop"}]),
    ]
    (found,), report = read(tmp_path, *spans)
    assert [(c.name, c.arguments, c.result, c.latency_s) for c in found.calls] == [
        ("get_weather", {"at": "Paris"}, "rainy", None)
    ]
    assert (found.turns[-1].content, found.stop_reason) == ("Rainy.", "stop")
    assert not report.notes
    bare = {"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 5}
    spans = [span("b", 1, 1, **bare), tool("b", 3, 1), tool("b", 4, 1), span("b", 6, 1, **bare), tool("b", 8, 1), span("b", 9, 1, **bare)]  # fmt: skip
    (found,), report = read(tmp_path, *spans)
    assert [len(turn.calls) for turn in found.turns] == [2, 1]  # what was said is unknown, not void
    assert found.tokens == 15
    assert report.notes == {"spans of a model that keep no answer, no turns made of them": 3}


def test_openinference_messages_are_read_from_their_flat_attributes(tmp_path):
    call = {"tool_call.id": "c1", "tool_call.function.name": "get_weather", "tool_call.function.arguments": '{"at": "Paris"}'}  # fmt: skip
    given, said = "llm.input_messages.{}.message.{}", "llm.output_messages.0.message.{}"
    first = {
        "openinference.span.kind": "LLM", "session.id": "s", "llm.token_count.completion": 17, "llm.model_name": "m",
        "input.value": '{"messages": [{"role": "user", "content": "raw"}]}', "output.value": '{"choices": [{"finish_reason": "tool_calls", "message": {}}]}',
        given.format(0, "role"): "system", given.format(0, "content"): "Be nice.", given.format(1, "role"): "user",
        given.format(1, "contents.0.message_content.type"): "text", given.format(1, "contents.0.message_content.text"): "Weather?",
        said.format("role"): "assistant", **{said.format(f"tool_calls.0.{k}"): v for k, v in call.items()},
        "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": {"name": "get_weather"}}),
    }  # fmt: skip
    request = [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "Weather?"}]
    answer = {"role": "assistant", "content": "Rainy."}
    second = {
        "openinference.span.kind": "LLM", "session.id": "s", "input.value": json.dumps({"messages": request}), "llm.token_count.completion": 9,
        "output.value": json.dumps({"choices": [{"finish_reason": "stop", "message": answer}]}),
    }  # fmt: skip
    used = {"openinference.span.kind": "TOOL", "session.id": "s", "tool.name": "get_weather", "input.value": '{"at": "Paris"}', "output.value": "rainy"}  # fmt: skip
    agent = {"openinference.span.kind": "AGENT", "input.value": "Weather?", "output.value": "Rainy."}
    spans = [
        span("a", 1, 2, **first),
        span("a", 4, 1.5, **used),
        span("a", 6, 2, **second),
        span("a", 0, 20, **agent),
    ]
    (found,), _ = read(tmp_path, *spans)
    assert [(t.role, t.content, t.tokens) for t in found.turns] == [
        ("system", "Be nice.", None), ("user", "Weather?", None), ("assistant", None, 17), ("assistant", "Rainy.", 9),
    ]  # fmt: skip
    assert [(c.name, c.arguments, c.result, c.latency_s) for c in found.calls] == [
        ("get_weather", {"at": "Paris"}, "rainy", 1.5)
    ]
    assert found.tools == [{"type": "function", "function": {"name": "get_weather"}}]
    assert (found.id, found.stop_reason, found.tokens, found.duration_s) == ("s", "stop", 26, 20.0)


def test_openinference_without_flat_messages_reads_the_request_and_the_answer(tmp_path):
    oi = {"openinference.span.kind": "LLM", "session.id": "s"}
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
    given = [{"role": "user", "content": "go"}]
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    again = [*given, reasoning, call, {"type": "function_call_output", "call_id": "c1", "output": "4"}]
    anthropic = {"role": "assistant", "content": [{"type": "text", "text": "bye"}], "stop_reason": "max_tokens"}  # fmt: skip
    requests = [
        ({"input": given, "instructions": "Be nice."}, {"output": [reasoning, call]}),
        ({"input": again, "instructions": "Be nice."}, {"output": [message]}),
        ({"messages": [{"role": "user", "content": "thanks"}], "system": "Be nice."}, anthropic),
    ]
    spans = [
        span("a", i, 1, **oi, **{"input.value": json.dumps(asked), "output.value": json.dumps(said)})
        for i, (asked, said) in enumerate(requests)
    ]
    (found,), _ = read(tmp_path, *spans)
    assert [(t.role, t.content, t.reasoning) for t in found.turns] == [
        ("system", "Be nice.", None), ("user", "go", None), ("assistant", None, "hmm"), ("assistant", "done", None),
        ("user", "thanks", None), ("assistant", "bye", None),
    ]  # fmt: skip
    assert [(c.name, c.arguments, c.result) for c in found.calls] == [("f", {"a": 1}, "4")]
    assert found.stop_reason == "max_tokens"


def test_a_summarised_history_is_not_taken_for_new_words(tmp_path):
    first = chat("a", 1, [USER], [parts("assistant", CALL)])
    edited = [parts("user", "WEATHER?"), parts("assistant", CALL), parts("tool", ANSWER)]
    (found,), report = read(tmp_path, first, chat("a", 6, edited, [parts("assistant", "Rainy.")]))
    assert [(t.role, t.content) for t in found.turns] == [
        ("user", "Weather?"),
        ("assistant", None),
        ("assistant", "Rainy."),
    ]
    assert report.notes == {"messages a model was asked that differ from what was said before, left out": 1}


def test_parallel_calls_are_answered_in_any_order(tmp_path):
    calls = [{**CALL, "id": name, "arguments": {"at": name}} for name in ("c1", "c2")]
    answers = [{**ANSWER, "id": name, "response": f"of {name}"} for name in ("c1", "c2")]
    asked = [USER, parts("assistant", *calls), *(parts("tool", answer) for answer in answers)]
    spans = [
        chat("a", 1, [USER], [parts("assistant", *calls)]),
        tool("a", 4, 2, **{"gen_ai.tool.call.id": "c2"}),
        tool("a", 4.5, 1, **{"gen_ai.tool.call.id": "c1"}),
        chat("a", 7, asked, [parts("assistant", "Done.")]),
    ]
    (found,), report = read(tmp_path, *spans)
    assert [(c.arguments, c.result, c.latency_s) for c in found.calls] == [
        ({"at": "c1"}, "of c1", 1.0),
        ({"at": "c2"}, "of c2", 2.0),
    ]
    assert [t.role for t in found.turns] == ["user", "assistant", "assistant"]
    assert not report.notes


def test_what_two_instrumentations_saw_is_read_once(tmp_path):
    asked = [USER, parts("assistant", CALL), parts("tool", ANSWER)]
    spans = [
        chat("a", 1, [USER], [parts("assistant", CALL)], id="outer", **{"gen_ai.usage.output_tokens": 9}),
        chat("a", 1.1, [USER], [parts("assistant", CALL)], id="inner", parent="outer", **{"gen_ai.usage.output_tokens": 9}),
        tool("a", 4, 1.5, id="run", **{"gen_ai.tool.call.id": "c1"}),
        tool("a", 4.1, 1, id="mcp", parent="run", **{"gen_ai.tool.call.result": "rainy"}),
        chat("a", 6, asked, [parts("assistant", "Rainy.")], id="last"),
    ]  # fmt: skip
    (found,), report = read(tmp_path, *spans)
    assert [(t.role, t.content) for t in found.turns] == [
        ("user", "Weather?"),
        ("assistant", None),
        ("assistant", "Rainy."),
    ]
    assert [(c.latency_s, c.result) for c in found.calls] == [(1.5, "rainy")]
    assert found.tokens == 9
    assert report.notes == {"spans of a model or tool that another span repeats, left out": 2}


def test_a_tool_that_the_provider_ran_answers_within_the_answer(tmp_path):
    ran = {**CALL, "type": "server_tool_call"}, {**ANSWER, "type": "server_tool_call_response"}
    answer = parts("assistant", "I look.", *ran, "Rainy.")
    first = chat("a", 1, [USER], [answer], **{"gen_ai.usage.output_tokens": 7})
    again = chat("a", 4, [USER, answer, parts("user", "Sure?")], [parts("assistant", "Yes.")])
    (found,), report = read(tmp_path, first, again)
    said = [(t.role, t.content, t.tokens, [c.result for c in t.calls]) for t in found.turns]
    assert said == [
        ("user", "Weather?", None, []),
        ("assistant", "I look.", 7, ["rainy"]),
        ("assistant", "Rainy.", None, []),
        ("user", "Sure?", None, []),
        ("assistant", "Yes.", None, []),
    ]
    assert not report.notes


def test_an_answer_in_items_with_a_tool_that_the_provider_ran(tmp_path):
    """OpenInference has the Responses API's output as it came."""
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "yes", "error": None},
        {"type": "compaction", "encrypted_content": "g"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There."}]},
    ]
    attributes = {"openinference.span.kind": "LLM", "session.id": "s1", "input.value": "Where?", "output.value": json.dumps({"output": output})}  # fmt: skip
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [samples._span(1, 2, attributes)]}]}]}
    (found,), report = read_episodes([write_lines(tmp_path / "a.jsonl", [spans])])
    said = [(t.content, t.reasoning, [(c.name, c.result) for c in t.calls]) for t in found.turns[1:]]
    assert said == [(None, "hm", [("ask", "yes")]), ("There.", None, [])]
    assert report.notes == {"items of a kind that is none of ours, left out: compaction": 1}
