"""Messages in the events of a model's span, where its attributes have none.

An event a message, as the GenAI conventions had it up to v1.36 (`gen_ai.user.message`, ..., `gen_ai.choice`); all in one, as they have
it since (`gen_ai.client.inference.operation.details`). Azure writes the body of the former as JSON in `gen_ai.event.content`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trimtab.traces.core.coerce import as_int, first_of
from trimtab.traces.readers.otel.messages import answered, asked, parsed
from trimtab.typing import Json

_DETAILS = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
)
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


def with_events(attributes: dict[str, Any], events: Iterable[tuple[Any, Json]]) -> dict[str, Any]:
    """The attributes of a model's span, with the messages of its `events` (name and attributes) where they have none themselves."""
    given: dict[str, Any] = {}
    messages: list[Json] = []
    choices: list[Json] = []
    for name, told in events:
        given |= {key: told[key] for key in _DETAILS if told.get(key) is not None}
        body = parsed(told.get("gen_ai.event.content"))
        body = body if isinstance(body, dict) else told
        if name in _ROLES:
            messages.append(_message(_ROLES[name], body))
        elif name == "gen_ai.choice":
            inner = parsed(body.get("message"))
            said = _message("assistant", inner if isinstance(inner, dict) else {**body, "content": first_of(body, "content", "message")})  # fmt: skip
            choices.append({"index": as_int(body.get("index")), "finish_reason": body.get("finish_reason"), **said})  # fmt: skip
    if messages:
        given.setdefault(_DETAILS[0], messages)
    if choices:
        given.setdefault(_DETAILS[1], choices)
    if given and any(message.get("role") not in ("system", "developer") for message in asked(attributes)):
        given.pop(_DETAILS[0], None)
        given.pop(_DETAILS[2], None)
    if given and answered(attributes):
        given.pop(_DETAILS[1], None)
    return given | attributes


def _message(role: str, body: Json) -> Json:
    made = {"role": role, "content": body.get("content")}
    if isinstance(calls := parsed(body.get("tool_calls")), list):
        made["tool_calls"] = calls
    if role == "tool":
        made["tool_call_id"] = first_of(body, "id", "tool_call_id")
    return made
