"""What a tool's span says: the tool, its schema, what it was given and what came back, in whichever wrapping a framework put it."""

from __future__ import annotations

import ast
import json
from typing import Any

from trimtab.traces.core.coerce import as_label, as_text, first_of
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.readers.otel.messages import parsed
from trimtab.traces.readers.otel.span import Span
from trimtab.typing import Json

_RESULT = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
_WRAPPED = ("kwargs", "input", "args", "arguments")
_GIVEN = ("gen_ai.tool.call.arguments", "input.value", "tool.parameters", "traceloop.entity.input")


def tool_name(span: Span) -> str:
    """The tool a span is of; where no attribute says so, by the span's own name."""
    named = first_of(span.attributes, "gen_ai.tool.name", "tool.name", "traceloop.entity.name")
    return as_label(named) or span.name


def arguments_of(span: Span) -> Any:
    """What the tool was given, parsed where it is JSON. `tool.parameters` holds the arguments in some instrumentations, the schema in others."""
    given = {k: v for k, v in span.attributes.items() if k != "tool.parameters" or not _is_schema(parsed(v))}
    return parsed(first_of(given, *_GIVEN))


def same_arguments(given: Any, called: Any) -> bool:
    """Is what a tool's span was given what the call has? As JSON, in Python's spelling (LangChain), or in a framework's wrapping."""
    wanted = _canonical(parsed(called))
    value = _python(given) if isinstance(given, str) else given
    inner = [value.get(name) for name in _WRAPPED] if isinstance(value, dict) else []
    return any(_canonical(one) == wanted for one in (given, value, *map(parsed, inner)) if one is not None)


def _canonical(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return ""


def _python(text: str) -> Any:
    try:
        return ast.literal_eval(text) if text.lstrip().startswith("{") else text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def schema_of(span: Span) -> list[dict[str, Any]]:
    """The tool in OpenAI's form where its span gives the schema, else nothing."""
    parameters = parsed(span.attributes.get("tool.parameters"))
    if not _is_schema(parameters):
        return []
    described = as_label(span.attributes.get("tool.description")) or ""
    tool = {"name": tool_name(span), "description": described, "parameters": parameters}
    return tools_of([{"type": "function", "function": tool}]) or []


def call_id_of(span: Span) -> str:
    """The id of the call it answers; empty where it says none."""
    message = _message(span)
    return as_label(span.attributes.get("gen_ai.tool.call.id") or message.get("tool_call_id")) or ""


def result_of(span: Span) -> tuple[str | None, str]:
    """What came back, and the error if that is one. LangChain writes the whole message, of which the content is the result."""
    message = _message(span)
    if not message:
        return as_text(_unquoted(first_of(span.attributes, *_RESULT), span)), span.error
    text = as_text(message.get("content"))
    return text, span.error or (text or "error" if message.get("status") == "error" else "")


def _unquoted(value: Any, span: Span) -> Any:
    """Traceloop writes whatever a tool gave back as JSON, text too."""
    given = span.attributes.get("traceloop.entity.output")
    text = parsed(value) if value is given and isinstance(value, str) and value.startswith('"') else value
    return text if isinstance(text, str) else value


def _message(span: Span) -> Json:
    """LangChain's ToolMessage: bare, as `data` of its type, or as `kwargs` of its constructor."""
    value = parsed(first_of(span.attributes, *_RESULT))
    if not isinstance(value, dict):
        return {}
    inner = [one for one in (value, value.get("data"), value.get("kwargs")) if isinstance(one, dict)]
    return next((one for one in inner if "tool_call_id" in one and "content" in one), {})


def _is_schema(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("type") == "object"
        and isinstance(value.get("properties"), dict)
    )
