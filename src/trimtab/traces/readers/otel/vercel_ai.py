"""Spans of Vercel's AI SDK (`experimental_telemetry`, versions 4 and 5), whose attributes begin with `ai.`, in the names of the GenAI conventions."""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import first_of
from trimtab.traces.readers.otel.messages import parsed
from trimtab.typing import Json

OPERATIONS = {
    **dict.fromkeys((f"ai.{does}{what}" for does in ("generate", "stream") for what in ("Text", "Object")), "agent"),
    **{f"ai.{does}{what}.do{does.capitalize()}": "model" for does in ("generate", "stream") for what in ("Text", "Object")},
    "ai.toolCall": "tool",
}  # fmt: skip
"""Its operations (`ai.operationId`) as kinds of spans. One around a `doGenerate` or `doStream` a step is the agent's."""
_NAMES = {
    "gen_ai.tool.name": ("ai.toolCall.name",),
    "gen_ai.tool.call.id": ("ai.toolCall.id",),
    "gen_ai.tool.call.arguments": ("ai.toolCall.args", "ai.toolCall.input"),
    "gen_ai.tool.call.result": ("ai.toolCall.result", "ai.toolCall.output"),
    "gen_ai.usage.output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
    "gen_ai.request.model": ("ai.model.id",),
}


def from_vercel(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes with those of the conventions that `ai.` ones say; as they are where there is no `ai.operationId`."""
    if OPERATIONS.get(str(attributes.get("ai.operationId"))) not in ("model", "tool"):
        return attributes
    found = {name: first_of(attributes, *ours) for name, ours in _NAMES.items()}
    prompt = parsed(attributes.get("ai.prompt.messages"))
    if isinstance(prompt, list):
        found["gen_ai.input.messages"] = [_message(one) for one in prompt if isinstance(one, dict)]
    calls = parsed(attributes.get("ai.response.toolCalls"))
    texts = {
        "reasoning": attributes.get("ai.response.reasoning"),
        "text": first_of(attributes, "ai.response.text", "ai.response.object"),
    }
    said: list[Json] = [{"type": kind, "content": text} for kind, text in texts.items() if text]
    said += [_call(one) for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    if said:
        reason = attributes.get("ai.response.finishReason")
        found["gen_ai.output.messages"] = [{"role": "assistant", "parts": said, "finish_reason": reason}]
    found["gen_ai.tool.definitions"] = attributes.get("ai.prompt.tools")
    return {**{name: value for name, value in found.items() if value is not None}, **attributes}


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
    given = first_of(part, "output", "result")
    failed = part.get("isError") is True
    if isinstance(given, dict) and "type" in given and "value" in given:  # since version 5
        failed = failed or str(given["type"]).startswith("error")
        given = given["value"]
    made = {"type": "tool_call_response", "id": part.get("toolCallId"), "response": given}
    return {**made, "is_error": True} if failed else made


def _call(raw: Json) -> Json:
    given = parsed(first_of(raw, "args", "input"))
    return {"type": "tool_call", "id": raw.get("toolCallId"), "name": raw.get("toolName"), "arguments": given}
