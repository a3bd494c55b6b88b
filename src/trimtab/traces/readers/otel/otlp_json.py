"""OTLP JSON to spans, and the spans of each conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.traces.core.coerce import objects_in
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.readers.otel.span import Span, conversation_id, span_of
from trimtab.typing import Json


def is_otlp(value: Json) -> bool:
    """Is it OTLP's JSON encoding of traces?"""
    return isinstance(value.get("resourceSpans"), list)


def conversations_of(records: Iterable[Record], report: ReadReport) -> Iterator[tuple[str, list[Span]]]:
    """Yield the id of each conversation with its spans by start time.

    All spans are in memory until the file ends.

    A span without the id of a conversation belongs to that of its nearest ancestor, else to the first of its
    trace. A trace without any id is one conversation. Traces without a span of a model, tool or agent are
    left out and counted.
    """
    traces: dict[str, dict[Any, Span]] = {}
    for record, value in iter_objects(records, report, is_otlp, "no resourceSpans"):
        for raw in _raw_spans(value):
            span = span_of(raw, record.source)
            if not span.trace:
                report.malformed(record.file, record.line, "a span without traceId")
                continue
            by_id = traces.setdefault(span.trace, {})
            key = span.id if span.id.strip("0") else len(by_id)
            if key in by_id:
                report.note("spans that come twice (trace and span id), read once")
            if key not in by_id or by_id[key].end < span.end:  # one may be sent before it ends
                by_id[key] = span
    conversations: dict[str, list[Span]] = {}
    for trace, by_id in traces.items():
        spans = list(by_id.values())
        names = _conversation_ids(trace, spans)
        if names is None:
            report.note("traces without a span of a model, tool or agent, left out")
            continue
        for name, span in zip(names, spans, strict=True):
            if span.kind or span.scores:
                conversations.setdefault(name, []).append(span)
    for name, spans in conversations.items():
        yield name, sorted(spans, key=lambda span: span.start)


def _conversation_ids(trace: str, spans: list[Span]) -> list[str] | None:
    """Return the conversation of each span, and set its ancestors.

    None for a trace without any conversation.
    """
    ids = {id(span): conversation_id(span) for span in spans}
    if not any(ids.values()) and not any(span.kind for span in spans):
        return None
    by_id = {span.id: span for span in spans if span.id}
    in_time = sorted(spans, key=lambda span: span.start)
    first = next((ids[id(span)] for span in in_time if ids[id(span)]), None)
    names = []
    for span in spans:
        span.above = tuple(_ancestors(span, by_id))
        lineage = (span, *span.above)
        named = next((i for i, one in enumerate(lineage) if ids[id(one)]), None)
        agent = next((i for i, one in enumerate(lineage) if one.kind == "agent"), len(lineage))
        span.has_conversation_id = named is not None and named <= agent
        names.append((ids[id(lineage[named])] if named is not None else None) or first or trace)
    return names


def _ancestors(span: Span, by_id: Mapping[str, Span]) -> Iterator[Span]:
    seen = {span.id}  # a damaged log may name a span as its own ancestor
    parent = by_id.get(span.parent)
    while parent is not None and parent.id not in seen:
        seen.add(parent.id)
        yield parent
        parent = by_id.get(parent.parent)


def _raw_spans(value: Json) -> Iterator[Json]:
    for resource in objects_in(value["resourceSpans"]):
        for scope in objects_in(resource.get("scopeSpans")):
            yield from objects_in(scope.get("spans"))
