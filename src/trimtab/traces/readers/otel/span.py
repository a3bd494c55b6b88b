"""One span of OTLP's JSON: its kind, its times, its error, whichever convention names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab.traces.core.coerce import as_label, as_nanoseconds, first_of
from trimtab.traces.readers.otel.attributes import attributes_of
from trimtab.traces.readers.otel.evaluations import scores_of
from trimtab.traces.readers.otel.events import with_events
from trimtab.traces.readers.otel.vercel_ai import OPERATIONS, from_vercel
from trimtab.typing import Json

_KINDS = {
    **dict.fromkeys(("chat", "generate_content", "text_completion", "LLM", "completion"), "model"),
    **dict.fromkeys(("execute_tool", "TOOL", "tool"), "tool"),
    **dict.fromkeys(("invoke_agent", "AGENT", "agent"), "agent"),
    **dict.fromkeys(("invoke_workflow", "create_agent", "CHAIN"), "chain"),
    **OPERATIONS,
}
_KIND_NAMES = (
    "gen_ai.operation.name",
    "openinference.span.kind",
    "traceloop.span.kind",
    "llm.request.type",
    "ai.operationId",
)


@dataclass(slots=True)
class Span:
    """`kind`: model, tool, agent, chain (what else a framework runs), or empty. `start`, `end` in nanoseconds since 1970, 0 where the span
    has none. `scores`: of evaluations, by name. `above`: its ancestors, nearest first. `named`: it, or an ancestor below or at its nearest agent, has
    the conversation's id."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    start: int
    end: int
    attributes: dict[str, Any]
    scores: tuple[tuple[str, float], ...]
    error: str
    source: str
    above: tuple[Span, ...] = ()
    named: bool = False


def conversation_of(span: Span) -> str | None:
    """The id of the conversation it says it is of."""
    return as_label(first_of(span.attributes, "gen_ai.conversation.id", "session.id"))


def span_of(raw: Json, source: str) -> Span:
    """The span of its JSON."""
    attributes = from_vercel(attributes_of(raw.get("attributes")))
    kinds = (_KINDS.get(as_label(attributes.get(name)) or "") for name in _KIND_NAMES)
    kind = next((kind for kind in kinds if kind), "")
    given = raw.get("events")
    events = [
        (e.get("name"), attributes_of(e.get("attributes")))
        for e in (given if isinstance(given, list) else ())
        if isinstance(e, dict)
    ]
    scores = scores_of([attributes, *(told for _, told in events)])
    if kind == "model" and events:
        attributes = with_events(attributes, events)
    state: Json = status if isinstance(status := raw.get("status"), dict) else {}
    failed = as_label(attributes.get("error.type")) or (
        "error" if state.get("code") in (2, "STATUS_CODE_ERROR") else ""
    )
    trace, id, parent, name = (
        as_label(raw.get(key)) or "" for key in ("traceId", "spanId", "parentSpanId", "name")
    )
    return Span(
        trace=trace, id=id, parent=parent, name=name, kind=kind, attributes=attributes,
        start=as_nanoseconds(raw.get("startTimeUnixNano")) or 0, end=as_nanoseconds(raw.get("endTimeUnixNano")) or 0,
        scores=scores, error=failed and (as_label(state.get("message")) or failed), source=source,
    )  # fmt: skip
