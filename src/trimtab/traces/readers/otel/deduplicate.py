"""Spans that tell of one thing twice, because a framework and the client under it are both instrumented."""

from __future__ import annotations

from collections import Counter

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.readers.otel.messages import answered
from trimtab.traces.readers.otel.span import Span
from trimtab.traces.readers.otel.tool_spans import tool_name


def once(spans: list[Span], report: ReadReport) -> list[Span]:
    """Without what two instrumentations saw twice: a model's span around others that keep answers, a tool's inside one of its name."""
    around = {(s.trace, s.parent) for s in spans if s.kind == "model" and answered(s.attributes)}
    tools = {(s.trace, s.id): tool_name(s) for s in spans if s.kind == "tool" and s.id}
    asked = Counter((one.trace, one.id) for s in spans if s.kind == "model" for one in s.above)
    kept = [
        span
        for span in spans
        if not (span.kind == "model" and span.id and (span.trace, span.id) in around)
        and not (
            span.kind == "tool"
            and span.parent != span.id
            and tools.get((span.trace, span.parent)) == tool_name(span)
            and asked[span.trace, span.parent] == asked[span.trace, span.id]  # else a sub-agent's own call
        )
    ]
    if len(kept) < len(spans):
        report.note("spans of a model or tool that another span repeats, left out", len(spans) - len(kept))
    return kept
