"""Request and response of a model span as OpenAI's messages, whichever convention wrote them.

The order of search: GenAI conventions v1.41 (`gen_ai.input.messages`, `gen_ai.output.messages`,
`gen_ai.system_instructions`, `gen_ai.tool.definitions`), OpenInference's flat
`llm.input_messages.0.message.role`, the flat `gen_ai.prompt.0.role` that both replaced, and the request and
response in `input.value` and `output.value`.
"""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_label, as_object, as_text, first_of, objects_in
from trimtab.traces.core.json_text import json_or_text
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.readers.otel.attributes import nested
from trimtab.typing import Json

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
INSTRUCTIONS, TOOLS = "gen_ai.system_instructions", "gen_ai.tool.definitions"
_Piece = tuple[Json, list[Json]]


def request_of(attributes: Json) -> list[Json]:
    """Return the messages the model was sent, its system prompt first. Empty where the span does not say."""
    messages = _named(attributes, INPUT, "llm.input_messages", "gen_ai.prompt", "user")
    request = json_or_text(attributes.get("input.value"))
    if not messages and isinstance(request, dict):
        messages = _messages(first_of(request, "messages", "input", "contents"), "user")
        if system := first_of(request, "system", "instructions"):
            messages = [{"role": "system", "content": system}, *messages]
    elif not messages and isinstance(request, list) and all(isinstance(m, dict) for m in request):
        messages = _messages(request, "user")
    if not messages:
        messages = _messages(attributes.get("input.value"), "user")
    instructions = json_or_text(attributes.get(INSTRUCTIONS))
    return [{"role": "system", "content": instructions}, *messages] if instructions else messages


def response_of(attributes: Json) -> list[Json]:
    """Return the messages the model answered with, of all choices."""
    messages = _named(attributes, OUTPUT, "llm.output_messages", "gen_ai.completion", "assistant")
    if messages:
        return messages
    response = json_or_text(attributes.get("output.value"))
    value = as_object(response)
    if isinstance(choices := value.get("choices"), list):
        inner = [
            (c.get("finish_reason"), m) for c in objects_in(choices) if (m := as_object(c.get("message")))
        ]
        reasons = [{"index": i, "finish_reason": why, **message} for i, (why, message) in enumerate(inner)]
        return _messages(reasons, "assistant")
    if isinstance(value.get("output"), list):
        return _messages(value["output"], "assistant")
    if "content" in value or "tool_calls" in value:
        return _messages([{"role": "assistant", **value}], "assistant")
    return _messages(attributes.get("output.value"), "assistant")


def first_choice(attributes: Json, report: ReadReport) -> list[Json]:
    """Return the model's answer as OpenAI's messages: the first of several choices (`n` > 1).

    The others are counted.

    A message is another choice where its index says so, after one with a finish reason, or where both have
    text. Items of the Responses API, and messages among which hosted tools answered, are pieces of one
    answer.
    """
    pieces = [(message, unpacked(message, report)) for message in response_of(attributes)]
    whole = isinstance(as_object(json_or_text(attributes.get("output.value"))).get("output"), list)
    if whole or any(one.get("role") == "tool" for message, parts in pieces for one in (message, *parts)):
        return [one for _, parts in pieces for one in parts]
    choices: list[list[_Piece]] = []
    for piece in pieces:
        if choices and not _is_other_choice(choices[-1], piece):
            choices[-1].append(piece)
        else:
            choices.append([piece])
    if len(choices) > 1:
        report.note("further answers to one request (n > 1), left out", len(choices) - 1)
    return [one for _, parts in (choices[0] if choices else ()) for one in parts]


def _is_other_choice(choice: list[_Piece], piece: _Piece) -> bool:
    last, index = choice[-1][0], piece[0].get("index")
    if index is not None and last.get("index") is not None:
        return bool(index != last["index"])
    return bool(last.get("finish_reason")) or (any(map(_has_text, choice)) and _has_text(piece))


def _has_text(piece: _Piece) -> bool:
    return any(one.get("content") for one in piece[1])


def offered_tools(attributes: Json) -> list[dict[str, Any]]:
    """Return the tools that the model was offered, in OpenAI's form."""
    raw = json_or_text(attributes.get(TOOLS))
    if raw is None:
        flat = objects_in([tool.get("tool") for tool in objects_in(nested(attributes, "llm.tools"))])
        raw = [json_or_text(tool.get("json_schema")) for tool in flat]
    if not raw:
        raw = as_object(json_or_text(attributes.get("input.value"))).get("tools")
    return tools_of([json_or_text(tool) for tool in raw] if isinstance(raw, list) else None) or []


def finish_reason(attributes: Json, answer: list[Json]) -> str | None:
    """Return why the model stopped, from the span or else from its answer."""
    reasons = attributes.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, list) and reasons:
        return as_label(reasons[0])  # of the first choice
    reason = as_label(first_of(attributes, "llm.finish_reason", "gen_ai.completion.0.finish_reason"))
    return reason or (as_label(first_of(answer[-1], "finish_reason", "stop_reason")) if answer else None)


def _named(attributes: Json, structured: str, flat: str, older: str, role: str) -> list[Json]:
    messages = json_or_text(attributes.get(structured))
    if messages is not None:
        return _messages([messages] if isinstance(messages, dict) else messages, role)
    entries = [*nested(attributes, flat), *nested(attributes, older)]
    return [_unflattened(entry, role) for entry in entries if isinstance(entry, dict)]


def _messages(raw: Any, role: str) -> list[Json]:
    """Return the messages of a list, or one message of a text. Each has a role, or is an item with a type."""
    if not isinstance(raw, list):
        return [] if raw is None else [{"role": role, "content": as_text(raw)}]
    raw = [
        m if isinstance(m, dict) else {"content" if isinstance(m, str) else type(m).__name__: m} for m in raw
    ]
    own = ({"role": as_label(m.get("role")) or role} if "role" in m or "type" not in m else {} for m in raw)
    return [{**m, **named} for m, named in zip(raw, own, strict=True)]


def _unflattened(entry: Json, role: str) -> Json:
    """Return a message of OpenInference, which nests each thing under its kind (`message`, `tool_call`,
    ...)."""
    message = _inside(entry, "message")
    plain = {k: v for k, v in message.items() if k not in ("contents", "tool_calls")}
    plain["role"] = as_label(message.get("role")) or role
    if isinstance(contents := message.get("contents"), list):
        plain["content"] = [_inside(item, "message_content") for item in objects_in(contents)]
    if isinstance(calls := message.get("tool_calls"), list):
        plain["tool_calls"] = [_inside(item, "tool_call") for item in objects_in(calls)]
    return plain


def _inside(entry: Json, name: str) -> Json:
    return inner if isinstance(inner := entry.get(name), dict) else entry
