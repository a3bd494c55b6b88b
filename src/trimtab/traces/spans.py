"""OpenTelemetry spans (OTLP JSON) to episodes: the GenAI conventions v1.41 and OpenInference.

A conversation (`gen_ai.conversation.id`, `session.id`) is an episode, else a trace is. Tool spans are calls, with the time they took;
model spans are turns, of which only the output is read: inputs repeat what came before. No convention has a reward: an
evaluation's score, where there is one, is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.traces.episode import Call, Episode, Turn
from trimtab.traces.json_records import BadJson, parse_json, require_object
from trimtab.traces.reading import ReadReport, Record
from trimtab.traces.tool_errors import error_text
from trimtab.traces.values import as_int, as_label, as_nanoseconds, as_number, as_text, first_of

__all__ = ["is_otlp", "read_otlp"]

Json = Mapping[str, Any]


def is_otlp(value: Json) -> bool:
    """OTLP's JSON encoding of traces."""
    return isinstance(value.get("resourceSpans"), list)


def read_otlp(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Episodes in the order of their first span's start; all spans are held until the file ends."""
    episodes: dict[str, list[tuple[int, dict[str, Any], Json, str]]] = {}
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if not is_otlp(value):
            report.malformed(record.file, record.line, "no resourceSpans")
            continue
        for span in _spans(value):
            attributes = _attributes(span.get("attributes"))
            name = as_label(first_of(attributes, "gen_ai.conversation.id", "session.id")) or as_label(
                span.get("traceId")
            )
            start = as_nanoseconds(span.get("startTimeUnixNano"))
            if name is None:
                report.malformed(record.file, record.line, "a span without traceId")
                continue
            episodes.setdefault(name, []).append((start or 0, attributes, span, record.source))
    for name, spans in episodes.items():
        spans.sort(key=lambda item: item[0])
        yield _episode(name, spans)


def _spans(value: Json) -> Iterator[Json]:
    for resource in value["resourceSpans"]:
        scopes = resource.get("scopeSpans") if isinstance(resource, dict) else None
        for scope in scopes if isinstance(scopes, list) else ():
            spans = scope.get("spans") if isinstance(scope, dict) else None
            yield from (span for span in (spans if isinstance(spans, list) else ()) if isinstance(span, dict))


def _attributes(raw: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in raw if isinstance(raw, list) else ():
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            found[item["key"]] = _value(item.get("value"))
    return found


def _value(raw: Any) -> Any:
    """AnyValue of OTLP: whole numbers come as text."""
    if not isinstance(raw, dict):
        return raw
    for kind, value in raw.items():
        if kind == "intValue":
            return as_int(value)
        if kind == "arrayValue":
            items = value.get("values") if isinstance(value, dict) else None
            return [_value(item) for item in items] if isinstance(items, list) else []
        if kind == "kvlistValue":
            return _attributes(value.get("values")) if isinstance(value, dict) else {}
        return value
    return None


def _episode(name: str, spans: list[tuple[int, dict[str, Any], Json, str]]) -> Episode:
    episode = Episode(id=name, source=spans[0][3])
    ends = [end for _, _, span, _ in spans if (end := as_nanoseconds(span.get("endTimeUnixNano"))) is not None]
    if spans[0][0] and ends:
        episode.time, episode.duration_s = spans[0][0] / 1e9, (max(ends) - spans[0][0]) / 1e9
    tokens: list[int] = []
    for number, (start, attributes, span, _) in enumerate(spans):
        kind = as_label(first_of(attributes, "gen_ai.operation.name", "openinference.span.kind")) or ""
        score = as_number(first_of(attributes, "gen_ai.evaluation.score.value", "evaluation.score"))
        episode.reward = score if score is not None else episode.reward
        if kind in ("execute_tool", "TOOL"):
            _assistant(episode, number).calls.append(_tool(attributes, span, start, number))
        elif kind in ("chat", "generate_content", "text_completion", "LLM"):
            _model(episode, attributes, number)
            used = as_int(
                first_of(
                    attributes,
                    "gen_ai.usage.output_tokens",
                    "gen_ai.usage.completion_tokens",
                    "llm.token_count.completion",
                )
            )
            tokens += [] if used is None else [used]
    episode.tokens = sum(tokens) if tokens else None
    return episode


def _assistant(episode: Episode, number: int) -> Turn:
    if not episode.turns or episode.turns[-1].role != "assistant":
        episode.turns.append(Turn(role="assistant", step=number))
    return episode.turns[-1]


def _tool(attributes: Json, span: Json, start: int, number: int) -> Call:
    call = Call(
        name=as_label(first_of(attributes, "gen_ai.tool.name", "tool.name")) or as_label(span.get("name")) or "",
        id=as_label(attributes.get("gen_ai.tool.call.id")) or "", step=number,
        result=as_text(first_of(attributes, "gen_ai.tool.call.result", "output.value")),
    )  # fmt: skip
    arguments = first_of(attributes, "gen_ai.tool.call.arguments", "input.value", "tool.parameters")
    try:
        call.arguments = parse_json(arguments) if isinstance(arguments, str) else arguments
    except BadJson:
        call.arguments = arguments  # free text is a legal input of a tool span
    end = as_nanoseconds(span.get("endTimeUnixNano"))
    call.latency_s = (end - start) / 1e9 if end is not None and start else None
    raw = span.get("status")
    status: Json = raw if isinstance(raw, dict) else {}
    if status.get("code") in (2, "STATUS_CODE_ERROR") or attributes.get("error.type"):
        call.error, call.error_from = (
            as_label(status.get("message")) or as_label(attributes.get("error.type")) or "error",
            "log",
        )
    elif text := error_text(call.result):
        call.error, call.error_from = text, "text"
    return call


def _model(episode: Episode, attributes: Json, number: int) -> None:
    """The first model span also gives the question; each gives what was answered."""
    if not episode.turns:
        asked = first_of(attributes, "gen_ai.input.messages", "input.value")
        episode.turns += [Turn(role=role, content=text, step=number) for role, text in _said(asked, "user")]
    reasons = attributes.get("gen_ai.response.finish_reasons")
    episode.stop_reason = (
        as_label(reasons[-1]) if isinstance(reasons, list) and reasons else episode.stop_reason
    )
    episode.model = (
        as_label(first_of(attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name"))
        or episode.model
    )
    text = "\n".join(
        said or ""
        for _, said in _said(first_of(attributes, "gen_ai.output.messages", "output.value"), "assistant")
    )
    episode.turns.append(Turn(role="assistant", content=text.strip() or None, step=number))


def _said(raw: Any, role: str) -> list[tuple[str, str | None]]:
    """Role and text of messages in the GenAI form, of JSON that holds them, or of plain text."""
    value = raw
    if isinstance(raw, str):
        try:
            value = parse_json(raw)
        except BadJson:
            return [(role, raw)]
    if not isinstance(value, list):
        return [] if value is None else [(role, as_text(raw))]
    found: list[tuple[str, str | None]] = []
    for message in value:
        if isinstance(message, dict):
            parts = message.get("parts")
            texts = (
                [as_text(p.get("content")) for p in parts if isinstance(p, dict) and p.get("type") == "text"]
                if isinstance(parts, list)
                else [as_text(message.get("content"))]
            )
            found.append((as_label(message.get("role")) or role, "".join(t for t in texts if t)))
    return found
