"""One span of OTLP JSON with its kind, times, error and scores, whichever convention wrote it.

Messages may stand in the events of a model span where its attributes have none. Up to v1.36 of the GenAI
conventions each message is an event (`gen_ai.user.message`, ..., `gen_ai.choice`). Later all are in one
(`gen_ai.client.inference.operation.details`). Azure writes the body of the former as JSON in
`gen_ai.event.content`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.traces.core.coerce import (
    as_int,
    as_label,
    as_nanoseconds,
    as_number,
    as_object,
    first_of,
    objects_in,
)
from trimtab.traces.core.json_text import json_or_text
from trimtab.traces.readers.otel.attributes import attributes_of
from trimtab.traces.readers.otel.messages import INPUT, INSTRUCTIONS, OUTPUT, TOOLS, request_of, response_of
from trimtab.traces.readers.otel.vercel_spans import OPERATIONS, from_vercel
from trimtab.typing import Json

_KINDS = {
    **dict.fromkeys(("chat", "generate_content", "text_completion", "LLM", "completion"), "model"),
    **dict.fromkeys(("execute_tool", "TOOL", "tool"), "tool"),
    **dict.fromkeys(("invoke_agent", "AGENT", "agent"), "agent"),
    **dict.fromkeys(("invoke_workflow", "create_agent", "CHAIN"), "chain"),
    **OPERATIONS,
}
_KIND_NAMES = (
    "gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type",
    "ai.operationId",
)  # fmt: skip
_ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_MESSAGES = (INPUT, OUTPUT, INSTRUCTIONS, TOOLS)
SpanId = tuple[str, str]
"""Ids of the trace and of the span in it."""


@dataclass(slots=True)
class Span:
    """A span, with its ancestors once its trace is complete."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    """model, tool, agent, chain (anything else that a framework runs), or empty."""
    start: int
    """Nanoseconds since 1970, 0 where the span has none; as is `end`."""
    end: int
    attributes: dict[str, Any]
    scores: tuple[tuple[str, float], ...]
    """Name and score of each evaluation in it."""
    error: str
    source: str
    above: tuple[Span, ...] = ()
    """Its ancestors, nearest first."""
    has_conversation_id: bool = False
    """The span, or an ancestor up to its nearest agent, has the id of the conversation."""

    @property
    def key(self) -> SpanId:
        """Ids of its trace and its own."""
        return self.trace, self.id

    @property
    def agent(self) -> Span | None:
        """Its nearest agent."""
        return next((one for one in self.above if one.kind == "agent"), None)


def conversation_id(span: Span) -> str | None:
    """Return the id of the conversation that the span names."""
    return as_label(first_of(span.attributes, "gen_ai.conversation.id", "session.id"))


def span_of(raw: Json, source: str) -> Span:
    """Return the span of its JSON."""
    attributes = from_vercel(attributes_of(raw.get("attributes")))
    kinds = (_KINDS.get(as_label(attributes.get(name)) or "") for name in _KIND_NAMES)
    kind = next(filter(None, kinds), "")
    events = [(e.get("name"), attributes_of(e.get("attributes"))) for e in objects_in(raw.get("events"))]
    scores = _scores([attributes, *(of_event for _, of_event in events)])
    if kind == "model" and events:
        attributes = _with_event_messages(attributes, events)
    status = as_object(raw.get("status"))
    failed = status.get("code") in (2, "STATUS_CODE_ERROR")
    error = as_label(attributes.get("error.type")) or ("error" if failed else "")
    names = ("traceId", "spanId", "parentSpanId", "name")
    trace, id, parent, name = (as_label(raw.get(key)) or "" for key in names)
    return Span(
        trace=trace,
        id=id,
        parent=parent,
        name=name,
        kind=kind,
        start=as_nanoseconds(raw.get("startTimeUnixNano")) or 0,
        end=as_nanoseconds(raw.get("endTimeUnixNano")) or 0,
        attributes=attributes,
        scores=scores,
        error=error and (as_label(status.get("message")) or error),
        source=source,
    )


def _scores(attributes: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, float], ...]:
    """Return name and score of each evaluation of a span and its events.

    One without a name is called `score`.
    """
    scores = []
    for one in attributes:
        score = as_number(first_of(one, "gen_ai.evaluation.score.value", "evaluation.score"))
        name = as_label(first_of(one, "gen_ai.evaluation.name", "evaluation.name"))
        if score is not None:
            scores.append((name or "score", score))
    return tuple(scores)


def _with_event_messages(attributes: dict[str, Any], events: Iterable[tuple[Any, Json]]) -> dict[str, Any]:
    """Return the attributes of a model span, with the messages of its events where it has none itself."""
    extra: dict[str, Any] = {}
    messages: list[Json] = []
    choices: list[Json] = []
    for name, event in events:
        extra |= {key: event[key] for key in _MESSAGES if event.get(key) is not None}
        content = json_or_text(event.get("gen_ai.event.content"))
        body = content if isinstance(content, dict) else event
        if name in _ROLES:
            messages.append(_event_message(_ROLES[name], body))
        elif name == "gen_ai.choice":
            inner = json_or_text(body.get("message"))
            if not isinstance(inner, dict):
                inner = {**body, "content": first_of(body, "content", "message")}
            choice = {"index": as_int(body.get("index")), "finish_reason": body.get("finish_reason")}
            choices.append({**choice, **_event_message("assistant", inner)})
    if messages:
        extra.setdefault(INPUT, messages)
    if choices:
        extra.setdefault(OUTPUT, choices)
    if extra and any(one.get("role") not in ("system", "developer") for one in request_of(attributes)):
        extra.pop(INPUT, None)
        extra.pop(INSTRUCTIONS, None)
    if extra and response_of(attributes):
        extra.pop(OUTPUT, None)
    return extra | attributes


def _event_message(role: str, body: Json) -> Json:
    message = {"role": role, "content": body.get("content")}
    if isinstance(calls := json_or_text(body.get("tool_calls")), list):
        message["tool_calls"] = calls
    if role == "tool":
        message["tool_call_id"] = first_of(body, "id", "tool_call_id")
    return message
