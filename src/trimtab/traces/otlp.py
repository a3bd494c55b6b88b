"""OTLP's JSON to spans, and spans to conversations; what is in a conversation is read in `traces.spans`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.traces.json_records import require_object
from trimtab.traces.otlp_values import attributes_of
from trimtab.traces.reading import ReadReport, Record
from trimtab.traces.values import as_label, as_nanoseconds, as_number, first_of

__all__ = ["Span", "conversations", "is_otlp"]

Json = Mapping[str, Any]
_KINDS = {
    **dict.fromkeys(("chat", "generate_content", "text_completion", "LLM", "completion"), "model"),
    **dict.fromkeys(("execute_tool", "TOOL", "tool"), "tool"),
    **dict.fromkeys(("invoke_agent", "invoke_workflow", "create_agent", "AGENT", "CHAIN", "agent"), "agent"),
}
_KIND_NAMES = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type")


@dataclass(slots=True)
class Span:
    """`kind`: model, tool, agent, or empty. `start`, `end` in nanoseconds since 1970, 0 where the span has none. `score`: an evaluation's."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    start: int
    end: int
    attributes: dict[str, Any]
    score: float | None
    error: str
    source: str


def is_otlp(value: Json) -> bool:
    """OTLP's JSON encoding of traces."""
    return isinstance(value.get("resourceSpans"), list)


def conversations(records: Iterable[Record], report: ReadReport) -> Iterator[tuple[str, list[Span]]]:
    """Conversations in the order of their coming, each sorted by start. All spans are held until the file ends.

    A span without a conversation's id is of the one of its nearest ancestor, else of its trace's first; a trace that names none is one.
    Traces in which no model, tool or agent had a span are left out and counted.
    """
    traces: dict[str, dict[Any, Span]] = {}
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if not is_otlp(value):
            report.malformed(record.file, record.line, "no resourceSpans")
            continue
        for raw in _spans(value):
            span = _span(raw, record.source)
            if not span.trace:
                report.malformed(record.file, record.line, "a span without traceId")
                continue
            of_trace = traces.setdefault(span.trace, {})
            key = span.id if span.id.strip("0") else len(of_trace)
            if key in of_trace:
                report.note("spans that come twice (trace and span id), read once")
            if key not in of_trace or of_trace[key].end < span.end:  # one may be sent before it ends
                of_trace[key] = span
    found: dict[str, list[Span]] = {}
    for trace, of_trace in traces.items():
        spans = list(of_trace.values())
        names = _names(trace, spans)
        if names is None:
            report.note("traces without a span of a model, tool or agent, left out")
            continue
        for name, span in zip(names, spans, strict=True):
            if span.kind or span.score is not None:
                found.setdefault(name, []).append(span)
    for name, spans in found.items():
        yield name, sorted(spans, key=lambda span: span.start)


def _names(trace: str, spans: list[Span]) -> list[str] | None:
    """The conversation of each span; None for a trace that is none."""
    own = [as_label(first_of(s.attributes, "gen_ai.conversation.id", "session.id")) for s in spans]
    if not any(own) and not any(span.kind for span in spans):
        return None
    by_id = {span.id: i for i, span in enumerate(spans) if span.id}
    started = [i for i in sorted(range(len(spans)), key=lambda i: spans[i].start) if own[i]]
    default = (own[started[0]] if started else None) or trace
    names = []
    for i in range(len(spans)):
        at: int | None = i
        for _ in spans:  # a damaged log may name a span as its own ancestor
            if at is None or own[at]:
                break
            at = by_id.get(spans[at].parent)
        names.append((own[at] if at is not None else None) or default)
    return names


def _spans(value: Json) -> Iterator[Json]:
    for resource in value["resourceSpans"]:
        scopes = resource.get("scopeSpans") if isinstance(resource, dict) else None
        for scope in scopes if isinstance(scopes, list) else ():
            spans = scope.get("spans") if isinstance(scope, dict) else None
            yield from (span for span in (spans if isinstance(spans, list) else ()) if isinstance(span, dict))


def _span(raw: Json, source: str) -> Span:
    attributes = attributes_of(raw.get("attributes"))
    kinds = (_KINDS.get(as_label(attributes.get(name)) or "") for name in _KIND_NAMES)
    events = raw.get("events")
    scores = [attributes] + [
        attributes_of(e.get("attributes"))
        for e in (events if isinstance(events, list) else ())
        if isinstance(e, dict)
    ]
    score = [
        s
        for a in scores
        if (s := as_number(first_of(a, "gen_ai.evaluation.score.value", "evaluation.score"))) is not None
    ]
    state: Json = status if isinstance(status := raw.get("status"), dict) else {}
    failed = as_label(attributes.get("error.type")) or (
        "error" if state.get("code") in (2, "STATUS_CODE_ERROR") else ""
    )
    trace, id, parent, name = (
        as_label(raw.get(key)) or "" for key in ("traceId", "spanId", "parentSpanId", "name")
    )
    return Span(
        trace=trace, id=id, parent=parent, name=name, kind=next((kind for kind in kinds if kind), ""), attributes=attributes,
        start=as_nanoseconds(raw.get("startTimeUnixNano")) or 0, end=as_nanoseconds(raw.get("endTimeUnixNano")) or 0,
        score=score[-1] if score else None, error=failed and (as_label(state.get("message")) or failed), source=source,
    )  # fmt: skip
