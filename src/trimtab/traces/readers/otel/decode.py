"""OTLP's JSON to spans, and spans to conversations; what is in a conversation is read in `traces.spans`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.otel.span import Span, conversation_of, span_of
from trimtab.typing import Json


def is_otlp(value: Json) -> bool:
    """OTLP's JSON encoding of traces."""
    return isinstance(value.get("resourceSpans"), list)


def conversations(records: Iterable[Record], report: ReadReport) -> Iterator[tuple[str, list[Span]]]:
    """Conversations in the order of their coming, each sorted by start. All spans are held until the file ends.

    A span without a conversation's id is of the one of its nearest ancestor, else of its trace's first; a trace that names none is one.
    Traces in which no model, tool or agent had a span are left out and counted.
    """
    traces: dict[str, dict[Any, Span]] = {}
    for record, value in iter_objects(records, report, is_otlp, "no resourceSpans"):
        for raw in _spans(value):
            span = span_of(raw, record.source)
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
            if span.kind or span.scores:
                found.setdefault(name, []).append(span)
    for name, spans in found.items():
        yield name, sorted(spans, key=lambda span: span.start)


def _names(trace: str, spans: list[Span]) -> list[str] | None:
    """The conversation of each span, whose ancestors are told to it; None for a trace that is none."""
    own = {id(span): conversation_of(span) for span in spans}
    if not any(own.values()) and not any(span.kind for span in spans):
        return None
    by_id = {span.id: span for span in spans if span.id}
    started = [span for span in sorted(spans, key=lambda span: span.start) if own[id(span)]]
    default = (own[id(started[0])] if started else None) or trace
    names = []
    for span in spans:
        span.above = tuple(_above(span, by_id))
        line = (span, *span.above)
        named = next((i for i, one in enumerate(line) if own[id(one)]), None)
        agent = next((i for i, one in enumerate(line) if one.kind == "agent"), len(line))
        span.named = named is not None and named <= agent
        names.append((own[id(line[named])] if named is not None else None) or default)
    return names


def _above(span: Span, by_id: Mapping[str, Span]) -> Iterator[Span]:
    seen = {span.id}  # a damaged log may name a span as its own ancestor
    at = by_id.get(span.parent)
    while at is not None and at.id not in seen:
        seen.add(at.id)
        yield at
        at = by_id.get(at.parent)


def _spans(value: Json) -> Iterator[Json]:
    for resource in value["resourceSpans"]:
        scopes = resource.get("scopeSpans") if isinstance(resource, dict) else None
        for scope in scopes if isinstance(scopes, list) else ():
            spans = scope.get("spans") if isinstance(scope, dict) else None
            yield from (span for span in (spans if isinstance(spans, list) else ()) if isinstance(span, dict))
