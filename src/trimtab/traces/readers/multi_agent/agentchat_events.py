"""Messages and events of AutoGen's AgentChat (`autogen_agentchat.messages`, 0.4 on) to messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_object, as_text, objects_in
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.speakers import CODE, is_human
from trimtab.typing import Json

_WORDS = frozenset(("TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage"))
_SILENT = frozenset((
    "UserInputRequestedEvent", "MemoryQueryEvent", "ModelClientStreamingChunkEvent", "SelectSpeakerEvent",
    "SelectorEvent",
))  # fmt: skip
_TYPES = frozenset((
    "ThoughtEvent", "ToolCallRequestEvent", "ToolCallExecutionEvent", "ToolCallSummaryMessage",
    "CodeGenerationEvent", "CodeExecutionEvent", *_WORDS, *_SILENT,
))  # fmt: skip
_REPEATED = "messages that repeat what tools gave (AgentChat), left out"
_UNREAD = "messages of AgentChat of a type we do not read, kept as text"


def is_agentchat(value: Json) -> bool:
    """Is it a message or an event?"""
    kind = value.get("type")
    known = isinstance(kind, str) and (kind in _TYPES or kind.startswith("StructuredMessage"))
    return known and "source" in value and ("content" in value or "result" in value)


def messages_of_agentchat(events: Sequence[Json], report: ReadReport) -> list[dict[str, Any]]:
    """The messages of a chat. A thought is the reasoning of what its agent says next."""
    chat: list[dict[str, Any]] = []
    thoughts: dict[str, str] = {}
    code: str | None = None  # the id of the call whose code was written last
    output: str | None = None  # of the code that was run last
    results: list[Any] = []  # of the calls before
    for event in events:
        kind, source = as_label(event.get("type")) or "", as_label(event.get("source")) or ""
        usage = as_object(event.get("models_usage"))
        message: dict[str, Any] = {
            "role": "user" if is_human(source) else "assistant",
            "name": source,
            "timestamp": event.get("created_at"),
            "tokens": as_int(usage.get("completion_tokens")),
        }
        if kind == "ThoughtEvent":
            thoughts[source] = as_text(event.get("content")) or ""
            continue
        if kind in _SILENT:
            continue
        if kind == "ToolCallExecutionEvent":
            chat += [_result(one, message) for one in objects_in(event.get("content"))]
            results = [one.get("content") for one in objects_in(event.get("content"))]
            continue
        if kind == "CodeExecutionEvent" and code is not None:
            ran = as_object(event.get("result"))
            output = as_text(ran.get("output")) or ""
            failed = as_int(ran.get("exit_code")) != 0
            chat.append({"role": "tool", "tool_call_id": code, "content": output, "is_error": failed})
            continue
        content = event.get("content")
        handed_on = kind == "HandoffMessage" and content in results
        if kind == "ToolCallSummaryMessage" or handed_on or (output is not None and content == output):
            report.note(_REPEATED)
            output = None
            continue
        if source in thoughts:
            message["reasoning_content"] = thoughts.pop(source)
        if kind == "ToolCallRequestEvent":
            message["tool_calls"] = [_call(one) for one in objects_in(content)]
        elif kind == "CodeGenerationEvent":
            code = f"code{len(chat)}"
            blocks = "\n".join(as_text(one.get("code")) or "" for one in objects_in(event.get("code_blocks")))
            function = {"name": CODE, "arguments": {"code": blocks}}
            message |= {"content": content, "tool_calls": [{"id": code, "function": function}]}
        else:
            if kind not in _WORDS and not kind.startswith("StructuredMessage"):
                report.note_each(_UNREAD, kind)
            message["content"] = as_text(content) if isinstance(content, dict) else _parts(content)
        chat.append(message)
    return chat


def _call(call: Json) -> Json:
    return {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}}


def _result(result: Json, message: Json) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": result.get("call_id"),
        "name": result.get("name"),
        "content": result.get("content"),
        "is_error": result.get("is_error"),
        "timestamp": message.get("timestamp"),
    }


def _parts(content: Any) -> Any:
    """Texts and images, of which an image is an object with its data."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": one} if isinstance(one, str) else {"type": "image", **as_object(one)}
        for one in content
    ]
