"""Spans of Vercel's AI SDK: an `ai.generateText` around a `doGenerate` a step and an `ai.toolCall` a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces.spans import read, span


def ai(start: float, took: float, operation: str, id: str, parent: str = "", **more: Any) -> dict[str, Any]:
    return span(
        "a", start, took, id=id, parent=parent, name=operation, **{"ai.operationId": operation, **more}
    )


def run(version: int) -> list[dict[str, Any]]:
    args, output = ("args", "result") if version == 4 else ("input", "output")
    given: Any = '{"at": "Paris"}' if version == 4 else {"at": "Paris"}
    got: Any = {"sky": "rainy"} if version == 4 else {"type": "json", "value": {"sky": "rainy"}}
    call = {"toolCallId": "c1", "toolName": "w", args: given}
    said = {"type": "tool-call", "toolCallId": "c1", "toolName": "w", args: {"at": "Paris"}}
    result = {"type": "tool-result", "toolCallId": "c1", "toolName": "w", output: got}
    asked: list[Any] = [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    ]
    again = [*asked, {"role": "assistant", "content": [{"type": "text", "text": "I look."}, said]}, {"role": "tool", "content": [result]}]  # fmt: skip
    used = "ai.usage.completionTokens" if version == 4 else "ai.usage.outputTokens"
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    tool = {"type": "function", "name": "w", "description": "Looks.", "parameters" if version == 4 else "inputSchema": schema}  # fmt: skip
    return [
        ai(1, 2, "ai.streamText.doStream", "m1", "run", **{
            "ai.prompt.messages": json.dumps(asked), "ai.prompt.tools": [json.dumps(tool)], "ai.response.text": "I look.",
            "ai.response.toolCalls": json.dumps([call]), "ai.response.finishReason": "tool-calls", "ai.model.id": "m", used: 7,
        }),
        ai(4, 1.5, "ai.toolCall", "t1", "run", **{
            "ai.toolCall.name": "w", "ai.toolCall.id": "c1", f"ai.toolCall.{args}": '{"at": "Paris"}', f"ai.toolCall.{output}": '{"sky": "rainy"}',
        }),
        ai(6, 2, "ai.streamText.doStream", "m2", "run", **{
            "ai.prompt.messages": json.dumps(again), "ai.response.text": "Rainy.", "ai.response.reasoning": "hm", "ai.response.finishReason": "stop", used: 2,
        }),
        ai(0, 9, "ai.streamText", "run", **{"ai.prompt": '{"prompt": "Weather?"}', "ai.response.text": "Rainy."}),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("tools", [True, False])
def test_a_run_of_two_steps(tmp_path, version, tools):
    spans = [one for one in run(version) if tools or one["name"] != "ai.toolCall"]
    (found,), report = read(tmp_path, *spans)
    assert [(t.role, t.content, t.reasoning, t.tokens) for t in found.turns] == [
        ("system", "Be nice.", None, None), ("user", "Weather?", None, None), ("assistant", "I look.", None, 7), ("assistant", "Rainy.", "hm", 2),
    ]  # fmt: skip
    assert [(c.name, c.arguments, c.result, c.latency_s) for c in found.calls] == [
        ("w", {"at": "Paris"}, '{"sky": "rainy"}', 1.5 if tools else None)
    ]
    assert (found.model, found.stop_reason, found.tokens, found.duration_s) == ("m", "stop", 9, 9.0)
    assert found.tools is not None
    assert found.tools[0]["function"]["parameters"]["properties"] == {"at": {"type": "string"}}
    assert not report.notes


def test_a_tool_that_runs_an_agent_of_its_own(tmp_path):
    inner = [
        ai(4.1, 1, "ai.generateText", "sub", "t1"),
        ai(4.2, 0.5, "ai.generateText.doGenerate", "s1", "sub", **{
            "ai.prompt.messages": json.dumps([{"role": "user", "content": "Sky?"}]), "ai.response.text": "grey",
        }),
    ]  # fmt: skip
    found, _ = read(tmp_path, *run(5), *inner)
    assert [[t.content for t in e.turns] for e in found] == [
        ["Be nice.", "Weather?", "I look.", "Rainy."],
        ["Sky?", "grey"],
    ]


def test_a_failed_result_of_version_5(tmp_path):
    spans = run(5)
    spans = [spans[0], spans[2]]
    text = json.dumps(spans[1]).replace('\\"json\\", \\"value\\": {\\"sky\\": \\"rainy\\"}', '\\"error-text\\", \\"value\\": \\"no sky\\"')  # fmt: skip
    (found,), _ = read(tmp_path, spans[0], json.loads(text))
    assert [(c.result, c.error, c.error_from) for c in found.calls] == [("no sky", "no sky", "log")]
