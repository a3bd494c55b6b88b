"""What a model's span says was asked and answered, in OpenAI's messages, whichever convention wrote it.

In the order in which they are looked for: GenAI conventions v1.41 (`gen_ai.input.messages`, `gen_ai.output.messages`,
`gen_ai.system_instructions`, `gen_ai.tool.definitions`), OpenInference's flat `llm.input_messages.0.message.role`, the flat
`gen_ai.prompt.0.role` that both replaced, and the request and answer in `input.value` and `output.value`.
"""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_label, as_text, first_of
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.readers.otel.attributes import nested
from trimtab.typing import Json


def parsed(raw: Any) -> Any:
    """The JSON value in a text; another text, and what is no text, as it is."""
    try:
        return parse_json(raw) if isinstance(raw, str) else raw
    except BadJson:
        return raw


def asked(attributes: Json) -> list[Json]:
    """The messages the model was given, its system prompt first; empty where the span does not say."""
    found = _named(attributes, "gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt", "user")
    request = parsed(attributes.get("input.value"))
    if not found and isinstance(request, dict):
        found = _messages(first_of(request, "messages", "input", "contents"), "user")
        if system := first_of(request, "system", "instructions"):
            found = [{"role": "system", "content": system}, *found]
    elif not found and isinstance(request, list) and all(isinstance(m, dict) for m in request):
        found = _messages(request, "user")
    if not found:
        found = _messages(attributes.get("input.value"), "user")
    instructions = parsed(attributes.get("gen_ai.system_instructions"))
    return [{"role": "system", "content": instructions}, *found] if instructions else found


def answered(attributes: Json) -> list[Json]:
    """The messages the model answered with, all choices of them."""
    found = _named(
        attributes, "gen_ai.output.messages", "llm.output_messages", "gen_ai.completion", "assistant"
    )
    if found:
        return found
    answer = parsed(attributes.get("output.value"))
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if isinstance(choices, list):
        made = [(c, c.get("message")) for c in choices if isinstance(c, dict)]
        found = [
            {"index": i, "finish_reason": c.get("finish_reason"), **m}
            for i, (c, m) in enumerate(made)
            if isinstance(m, dict)
        ]
        return _messages(found, "assistant")
    if isinstance(answer, dict) and isinstance(answer.get("output"), list):
        return _messages(answer["output"], "assistant")
    if isinstance(answer, dict) and ("content" in answer or "tool_calls" in answer):
        return _messages([{"role": "assistant", **answer}], "assistant")
    return _messages(attributes.get("output.value"), "assistant")


def tools_given(attributes: Json) -> list[dict[str, Any]]:
    """The tools the model was offered, in OpenAI's form."""
    raw = parsed(attributes.get("gen_ai.tool.definitions"))
    if raw is None:
        flat = [tool.get("tool") for tool in nested(attributes, "llm.tools") if isinstance(tool, dict)]
        raw = [parsed(tool.get("json_schema")) for tool in flat if isinstance(tool, dict)]
    if not raw:
        request = parsed(attributes.get("input.value"))
        raw = request.get("tools") if isinstance(request, dict) else None
    return tools_of([parsed(tool) for tool in raw] if isinstance(raw, list) else None) or []


def finish_reason(attributes: Json, said: list[Json]) -> str | None:
    """Why the model stopped: of the span, else of its answer."""
    reasons = attributes.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, list) and reasons:
        return as_label(reasons[0])  # of the first choice
    reason = as_label(first_of(attributes, "llm.finish_reason", "gen_ai.completion.0.finish_reason"))
    return reason or (as_label(first_of(said[-1], "finish_reason", "stop_reason")) if said else None)


def _named(attributes: Json, structured: str, flat: str, older: str, role: str) -> list[Json]:
    found = parsed(attributes.get(structured))
    if found is not None:
        return _messages(found, role)
    return [
        _unflattened(entry, role)
        for prefix in (flat, older)
        for entry in nested(attributes, prefix)
        if isinstance(entry, dict)
    ]


def _messages(raw: Any, role: str) -> list[Json]:
    """Messages of a list, or one of text; each has a role."""
    if isinstance(raw, list):
        found = [m for m in raw if isinstance(m, dict)]  # items of the Responses API have a type instead
        return [
            {**m, "role": as_label(m.get("role")) or role} if "role" in m or "type" not in m else m
            for m in found
        ]
    return [] if raw is None else [{"role": role, "content": as_text(raw)}]


def _unflattened(entry: Json, role: str) -> Json:
    """OpenInference nests each thing once more under its kind: `message`, `tool_call`, `message_content`."""
    message = _inside(entry, "message")
    made = {k: v for k, v in message.items() if k not in ("contents", "tool_calls")}
    made["role"] = as_label(message.get("role")) or role
    parts, calls = message.get("contents"), message.get("tool_calls")
    if isinstance(parts, list):
        made["content"] = [_inside(part, "message_content") for part in parts if isinstance(part, dict)]
    if isinstance(calls, list):
        made["tool_calls"] = [_inside(call, "tool_call") for call in calls if isinstance(call, dict)]
    return made


def _inside(entry: Json, name: str) -> Json:
    inner = entry.get(name)
    return inner if isinstance(inner, dict) else entry
