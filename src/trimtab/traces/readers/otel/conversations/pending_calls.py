"""Calls that wait for an answer, and which of them a tool's span answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trimtab.traces.core.coerce import as_label, first_of
from trimtab.traces.readers.otel.messages import parsed
from trimtab.traces.readers.otel.span import Span
from trimtab.traces.readers.otel.tool_spans import arguments_of, call_id_of, same_arguments, tool_name
from trimtab.typing import Json


class Open(NamedTuple):
    """A call that has no answer yet."""

    id: str
    name: str
    arguments: Any


def place_of(span: Span, open: Sequence[Open]) -> tuple[int | None, bool]:
    """The open call a tool's span answers, and whether that is sure: of its id; else of its name with its arguments; else of its name."""
    name, called = tool_name(span), call_id_of(span)
    by_id = [i for i, one in enumerate(open) if called and one.id == called]
    if by_id:
        return by_id[-1], True
    named = [i for i, one in enumerate(open) if one.name == name]
    given = arguments_of(span)
    same = [i for i in named if same_arguments(given, open[i].arguments)]
    return next(iter([*same, *named]), None), len(same) == 1


def is_call_of(span: Span, call: Open) -> bool:
    """Has the call the name and the arguments of a tool's span?"""
    return call.name == tool_name(span) and same_arguments(arguments_of(span), call.arguments)


def opened(call: Any) -> Open:
    """The call of a message, as OpenAI writes it."""
    raw = parsed(call)
    found: Json = raw if isinstance(raw, dict) else {}
    function = found.get("function")
    inner: Json = function if isinstance(function, dict) else found
    return Open(*id_and_name(raw), inner.get("arguments", inner.get("args")))


def id_and_name(call: Any) -> tuple[str, str]:
    """Of a call, or of a tool's schema; empty where it has none."""
    raw = parsed(call)
    found: Json = raw if isinstance(raw, dict) else {}
    function = found.get("function")
    name = (
        function.get("name") if isinstance(function, dict) else first_of(found, "function", "name")
    )  # OpenLLMetry's are flat
    return as_label(found.get("id")) or "", as_label(name) or ""
