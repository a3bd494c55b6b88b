"""Tool spans: the tool, its schema, arguments and result, and the open call that a span answers.

Frameworks wrap arguments and results differently.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from trimtab.traces.core.coerce import as_label, as_object, as_text, first_of
from trimtab.traces.core.json_text import json_or_text
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.readers.otel.span import Span
from trimtab.typing import Json

_RESULT = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
_WRAPPERS = ("kwargs", "input", "args", "arguments")
_ARGUMENTS = ("gen_ai.tool.call.arguments", "input.value", "tool.parameters", "traceloop.entity.input")


class OpenCall(NamedTuple):
    """A call that has no answer yet."""

    id: str
    name: str
    arguments: Any


def open_call(call: Any) -> OpenCall:
    """Return the call of a message in OpenAI's form."""
    raw = as_object(json_or_text(call))
    inner = own if isinstance(own := raw.get("function"), dict) else raw
    return OpenCall(*id_and_name(raw), inner.get("arguments", inner.get("args")))


def id_and_name(call: Any) -> tuple[str, str]:
    """Return id and name of a call or of a tool's schema. Each is empty where there is none."""
    raw = as_object(json_or_text(call))
    function = raw.get("function")  # OpenLLMetry's calls are flat
    name = function.get("name") if isinstance(function, dict) else first_of(raw, "function", "name")
    return as_label(raw.get("id")) or "", as_label(name) or ""


def match_call(span: Span, calls: Sequence[OpenCall]) -> tuple[int | None, bool]:
    """Return the index of the open call that a tool span answers, and whether that is certain.

    It is the call of its id, else of its name and arguments, else of its name.
    """
    name, call_id, arguments = tool_name(span), call_id_of(span), arguments_of(span)
    by_id = [i for i, one in enumerate(calls) if call_id and one.id == call_id]
    if by_id:
        return by_id[-1], True
    by_name = [i for i, one in enumerate(calls) if one.name == name]
    same = [i for i in by_name if _same_arguments(arguments, calls[i].arguments)]
    return next(iter([*same, *by_name]), None), len(same) == 1


def is_call_of(span: Span, call: OpenCall) -> bool:
    """Has the call the name and the arguments of a tool span?"""
    return call.name == tool_name(span) and _same_arguments(arguments_of(span), call.arguments)


def tool_name(span: Span) -> str:
    """Return the name of the tool. Where no attribute has it, it is the span's own name."""
    named = first_of(span.attributes, "gen_ai.tool.name", "tool.name", "traceloop.entity.name")
    return as_label(named) or span.name


def arguments_of(span: Span) -> Any:
    """Return the arguments, parsed where they are JSON.

    Some instrumentations write them to `tool.parameters`, where others write the schema.
    """
    attributes = dict(span.attributes)
    if _is_schema(json_or_text(attributes.get("tool.parameters"))):
        del attributes["tool.parameters"]
    return json_or_text(first_of(attributes, *_ARGUMENTS))


def _same_arguments(of_span: Any, of_call: Any) -> bool:
    """Are both equal as JSON, in Python's spelling (LangChain), or inside a framework's wrapper?"""
    wanted = _canonical(json_or_text(of_call))
    value = _python_literal(of_span) if isinstance(of_span, str) else of_span
    inner = [json_or_text(as_object(value).get(name)) for name in _WRAPPERS]
    return any(_canonical(one) == wanted for one in (of_span, value, *inner) if one is not None)


def _canonical(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return ""


def _python_literal(text: str) -> Any:
    try:
        return ast.literal_eval(text) if text.lstrip().startswith("{") else text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def schema_of(span: Span) -> list[dict[str, Any]]:
    """Return the tool in OpenAI's form where its span has the schema, else an empty list."""
    parameters = json_or_text(span.attributes.get("tool.parameters"))
    if not _is_schema(parameters):
        return []
    description = as_label(span.attributes.get("tool.description")) or ""
    tool = {"name": tool_name(span), "description": description, "parameters": parameters}
    return tools_of([{"type": "function", "function": tool}]) or []


def call_id_of(span: Span) -> str:
    """Return the id of the call that the span answers. Empty where it has none."""
    call_id = span.attributes.get("gen_ai.tool.call.id") or _langchain_message(span).get("tool_call_id")
    return as_label(call_id) or ""


def result_of(span: Span) -> tuple[str | None, str]:
    """Return the result, and the error if the call failed.

    LangChain writes the whole message, whose content is the result. Traceloop writes every result as JSON,
    also text.
    """
    message = _langchain_message(span)
    if message:
        text = as_text(message.get("content"))
        return text, span.error or (text or "error" if message.get("status") == "error" else "")
    value = first_of(span.attributes, *_RESULT)
    quoted = value is span.attributes.get("traceloop.entity.output") and isinstance(value, str)
    text = json_or_text(value) if quoted and value.startswith('"') else value
    return as_text(text if isinstance(text, str) else value), span.error


def _langchain_message(span: Span) -> Json:
    """Return LangChain's ToolMessage: bare, as `data` of its type, or as `kwargs` of its constructor."""
    value = as_object(json_or_text(first_of(span.attributes, *_RESULT)))
    inner = [value, as_object(value.get("data")), as_object(value.get("kwargs"))]
    return next((one for one in inner if "tool_call_id" in one and "content" in one), {})


def _is_schema(value: Any) -> bool:
    fields = as_object(value)
    return fields.get("type") == "object" and isinstance(fields.get("properties"), dict)
