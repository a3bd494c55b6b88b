"""Chat messages of any maker's to turns, each call with its result.

The trap: ids of calls are reused within an episode (73 times in tau-bench's published file), so a result
answers the latest message's call of its id that has no answer yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_object, as_text, as_time, first_of
from trimtab.traces.core.episode import Call, Turn
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.content_blocks import reasoning_of
from trimtab.traces.messages.normalization import ROLES
from trimtab.traces.messages.responses_api import in_openais_form
from trimtab.traces.messages.tool_results import answer, answered, call_of, raw_calls
from trimtab.typing import Json

_NO_ROLE = "messages of a role that is none of ours, kept"
_NO_SPEAKER = "messages without a role, kept"
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def as_messages(value: Any) -> list[Any]:
    """The list of messages; of what is none one that cannot be read, so that it is counted."""
    return value if isinstance(value, list) else [] if value is None else [value]


def turns_of(messages: Iterable[Any], report: ReadReport) -> list[Turn]:
    """Turns of messages of any maker's, each of the step where it stands, an answer in items where its first
    one does.

    A value that is not a message is counted and left out; a result that answers no call stays as a turn of
    its own.
    """
    turns: list[Turn] = []
    pending: list[Call] = []
    for step, message in in_openais_form(messages, report):
        role = as_label(message.get("role")) or ""
        if not role.strip():
            report.unread_message(_NO_SPEAKER, message)
        elif role not in ROLES:
            report.note_each(_NO_ROLE, role)
        if role == "tool":
            call = answered(pending, message)
            if call is not None:
                answer(call, message)
                continue
            report.note("tool results that answer no call, kept as turns")
        calls = [call_of(raw, step, report) for raw in raw_calls(message, report)]
        pending += calls
        turns.append(_turn(message, role, step, calls))
    return turns


def _turn(message: Json, role: str, step: int, calls: list[Call]) -> Turn:
    usage = message.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else message.get("tokens")
    if tokens is None:
        tokens = as_object(message.get("usage_metadata")).get("output_tokens")
    content = first_of(message, "content", "value")
    if role != "tool" and not isinstance(content, str) and _is_empty(content):
        content = None  # Anthropic's answer that adds nothing to a result; of a tool it is JSON
    return Turn(
        role=role,
        content=as_text(content),
        reasoning=reasoning_of(message),
        calls=calls,
        step=step,
        name=as_label(message.get("name")),
        time=as_time(first_of(message, "timestamp", "created_at", "time")),
        tokens=as_int(tokens),
    )


def _is_empty(content: Any) -> bool:
    return content in _EMPTY or (isinstance(content, list) and all(part in _EMPTY for part in content))
