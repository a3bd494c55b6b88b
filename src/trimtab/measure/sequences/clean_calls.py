"""A tool call as it may be stored: every field has its type, whatever a model or a loop put there."""

from __future__ import annotations

from trimtab.capture.clean_values import Door
from trimtab.traces.core.tool_call import BLAMES, ToolCall
from trimtab.traces.errors.database_errors import database_blame

_LARGEST = 2**53  # integers that any reader of JSON keeps exact


def clean_call(call: ToolCall, door: Door) -> ToolCall:
    """Return the call with its fields cleaned; `door` counts what was changed. A database's error without
    blame has the blame that its words say.

    Raises:
        TypeError: not a `ToolCall`.

    Example:
        >>> door = Door()
        >>> (clean_call(ToolCall("search", latency_s="fast"), door).latency_s,
        ...     dict(door.changed)["tool call latency"])
        (nan, 1)
    """
    if not isinstance(call, ToolCall):
        raise TypeError(f"tool_call takes a ToolCall, got {type(call).__name__}")
    size = door.number("tool call result size", call.result_size, 0.0)
    error = door.text("tool call error", call.error) if call.error else ""
    arguments = door.json("tool call argument", call.arguments)
    return ToolCall(
        name=door.name("tool call name", call.name),
        arguments=arguments if isinstance(arguments, dict) else {},
        result_size=int(min(size, _LARGEST)),
        error=error,
        latency_s=door.number("tool call latency", call.latency_s),
        step=_index(call.step),
        episode_id=_index(call.episode_id),
        blame=call.blame if call.blame in BLAMES else database_blame(error),
        kind=door.text("tool call kind", call.kind) if call.kind else "",
        attempts=max(_index(call.attempts), 0),
        queued_s=door.number("tool call queue time", call.queued_s, 0.0),
        cached=call.cached is True,
    )


def _index(raw: object) -> int:
    if isinstance(raw, bool) or not hasattr(raw, "__index__"):
        return -1
    value = int(raw.__index__())
    return value if -1 <= value < _LARGEST else -1
