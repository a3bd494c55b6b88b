"""The Vercel AI SDK's messages to typed blocks: ModelMessages (`tool-call`, `tool-result`) and UIMessages of
versions 4 and 5.

A UIMessage holds a whole answer: its parts are of steps, each begun by `step-start`, and a call's result
stands in the call.
"""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import first_of
from trimtab.typing import Json

_ERRORS = ("error-text", "error-json", "execution-denied")
_UNSAID = ("tool-approval-request", "tool-approval-response")
_DONE = {"result": False, "output-available": False, "output-error": True, "output-denied": True}
"""States of a call that has a result: did it fail?"""


def from_vercel(message: Json) -> Json:
    """The message with blocks for its content; others as they are.

    >>> part = {"type": "tool-result", "toolCallId": "c", "output": {"type": "error-text",
    ...     "value": "no seats"}}
    >>> from_vercel({"role": "tool", "content": [part]})["content"][0]["is_error"]
    True
    """
    parts, old, content = message.get("parts"), message.get("toolInvocations"), message.get("content")
    if parts is None and old is None and not isinstance(content, list):
        return message
    if isinstance(parts, list) and any(_is_ui(part) for part in parts):
        return _with_blocks(message, _steps(parts))
    if isinstance(old, list) and any(isinstance(one, dict) and "toolCallId" in one for one in old):
        texts = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        return _with_blocks(message, _steps([*({"type": "tool-invocation", "toolInvocation": o} for o in old),
            *texts]))  # fmt: skip
    if isinstance(content, list) and any(_is_part(part) for part in content):
        known = [part for part in content if not (isinstance(part, dict) and part.get("type") in _UNSAID)]
        return {**message, "content": [_block(part) if _is_part(part) else part for part in known]}
    return message


def _with_blocks(message: Json, blocks: list[Any]) -> Json:
    thought = any(isinstance(one, dict) and one.get("type") == "reasoning" for one in blocks)
    left = ("parts", "toolInvocations", "content", *(("reasoning",) if thought else ()))
    return {**{k: v for k, v in message.items() if k not in left}, "content": blocks or None}


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, dict) and part.get("type") in ("tool-call", "tool-result") and "toolCallId" in part
    )


def _block(part: Json) -> Json:
    """Of a ModelMessage."""
    if part["type"] == "tool-call":
        return _call(part, part.get("toolName"))
    result = {"type": "tool_result", "tool_use_id": part["toolCallId"], "name": part.get("toolName")}
    output, failed = part.get("output"), part.get("isError")
    if not isinstance(output, dict) or not isinstance(kind := output.get("type"), str):
        return {**result, "content": first_of(part, "result", "output"), "is_error": failed}
    value = first_of(output, "value", "reason")
    if kind == "content" and isinstance(value, list):
        value = [_medium(one) for one in value]
    return {**result, "content": value, "is_error": True if kind in _ERRORS else failed}


def _medium(part: Any) -> Any:
    """A part of a result: text, or what is written as `[image]` or `[file]`."""
    if not isinstance(part, dict) or not isinstance(kind := part.get("type"), str) or kind == "text":
        return part
    return {**part, "type": "image" if kind.startswith("image") else "file",
        "file": first_of(part, "data", "url", "fileId")}  # fmt: skip


def _call(part: Json, name: Any) -> Json:
    kind = "server_tool_use" if part.get("providerExecuted") is True else "tool_use"
    arguments = first_of(part, "input", "args", "rawInput")
    return {"type": kind, "id": part.get("toolCallId"), "name": name, "input": arguments}


def _is_ui(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind == "step-start" or _invocation(part) is not None


def _invocation(part: Any) -> tuple[Json, Any] | None:
    """A UIMessage's call, and the tool's name; None for another part."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "tool-invocation" and isinstance(inner := part.get("toolInvocation"), dict):
        return inner, inner.get("toolName")
    if not isinstance(kind, str) or "toolCallId" not in part:
        return None
    if kind.startswith("tool-") and "state" in part:
        return part, kind.removeprefix("tool-")
    return (part, part.get("toolName")) if kind == "dynamic-tool" else None


def _steps(parts: list[Any]) -> list[Any]:
    """Blocks in the order in which they were written: what the agent said and called, then what came back, of
    all its calls in a row.

    Text after a result is of a new step, whether or not a part begins one.
    """
    blocks: list[Any] = []
    results: list[Json] = []
    for part in parts:
        call = _invocation(part)
        if call is None:
            blocks, results = [*blocks, *results], []
            blocks += [] if isinstance(part, dict) and part.get("type") == "step-start" else [part]
        else:
            blocks.append(_call(*call))
            results += _result(*call)
    return [*blocks, *results]


def _result(part: Json, name: Any) -> list[Json]:
    state = part.get("state")
    if not isinstance(state, str) or state not in _DONE:
        return []
    content = first_of(part, "errorText") if _DONE[state] else first_of(part, "output", "result")
    result = {"type": "tool_result", "tool_use_id": part.get("toolCallId"), "name": name, "content": content}
    return [{**result, "is_error": _DONE[state] or None}]
