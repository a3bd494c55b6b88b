"""Spans of Vercel's AI SDK (`experimental_telemetry`, versions 4 and 5), whose attributes begin with `ai.`,
under GenAI names."""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import first_of, objects_in
from trimtab.traces.core.json_text import json_or_text
from trimtab.typing import Json

_VERBS, _OBJECTS = ("generate", "stream"), ("Text", "Object")
OPERATIONS = {
    **{f"ai.{verb}{what}": "agent" for verb in _VERBS for what in _OBJECTS},
    **{f"ai.{verb}{what}.do{verb.capitalize()}": "model" for verb in _VERBS for what in _OBJECTS},
    "ai.toolCall": "tool",
}
"""Operations (`ai.operationId`) and their kinds of spans.

One around a `doGenerate` or `doStream` for each step is the agent's.
"""
_NAMES = {
    "gen_ai.tool.name": ("ai.toolCall.name",),
    "gen_ai.tool.call.id": ("ai.toolCall.id",),
    "gen_ai.tool.call.arguments": ("ai.toolCall.args", "ai.toolCall.input"),
    "gen_ai.tool.call.result": ("ai.toolCall.result", "ai.toolCall.output"),
    "gen_ai.usage.output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
    "gen_ai.request.model": ("ai.model.id",),
    "gen_ai.tool.definitions": ("ai.prompt.tools",),
}


def from_vercel(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes with GenAI names for those of `ai.`.

    Without an `ai.operationId` they stay as they are.
    """
    if OPERATIONS.get(str(attributes.get("ai.operationId"))) not in ("model", "tool"):
        return attributes
    renamed = {name: first_of(attributes, *theirs) for name, theirs in _NAMES.items()}
    prompt = json_or_text(attributes.get("ai.prompt.messages"))
    if isinstance(prompt, list):
        renamed["gen_ai.input.messages"] = [_message(one) for one in prompt if isinstance(one, dict)]
    texts = {
        "reasoning": attributes.get("ai.response.reasoning"),
        "text": first_of(attributes, "ai.response.text", "ai.response.object"),
    }
    parts: list[Json] = [{"type": kind, "content": text} for kind, text in texts.items() if text]
    parts += map(_call, objects_in(json_or_text(attributes.get("ai.response.toolCalls"))))
    if parts:
        reason = attributes.get("ai.response.finishReason")
        renamed["gen_ai.output.messages"] = [{"role": "assistant", "parts": parts, "finish_reason": reason}]
    return {**{name: value for name, value in renamed.items() if value is not None}, **attributes}


def _message(message: Json) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(one) if isinstance(one, dict) else one for one in content]}


def _part(part: Json) -> Json:
    kind = part.get("type")
    if kind == "tool-call":
        return _call(part)
    if kind != "tool-result":
        return part
    response = first_of(part, "output", "result")
    failed = part.get("isError") is True
    if isinstance(response, dict) and "type" in response and "value" in response:  # since version 5
        failed = failed or str(response["type"]).startswith("error")
        response = response["value"]
    result = {"type": "tool_call_response", "id": part.get("toolCallId"), "response": response}
    return {**result, "is_error": True} if failed else result


def _call(raw: Json) -> Json:
    call = {"type": "tool_call", "id": raw.get("toolCallId"), "name": raw.get("toolName")}
    return {**call, "arguments": json_or_text(first_of(raw, "args", "input"))}
