"""OpenTelemetry spans as SDKs and collectors write them: nanoseconds of today, spans in the order in which they ended."""

from __future__ import annotations

import json
from typing import Any

from tests.traces.make import write_lines
from trimtab.traces.read import read_episodes

T0 = 1_763_740_004_000_000_000


def attribute(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [attribute("", v)["value"] for v in value]}}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"doubleValue" if isinstance(value, float) else "stringValue": value}}


def span(trace: str, start_s: float, took_s: float, **attributes: Any) -> dict[str, Any]:
    """A span; `name`, `id`, `parent` and `status` are the span's own, `a__b` is the attribute a.b."""
    own = {key: attributes.pop(key, None) for key in ("name", "id", "parent", "status", "events")}
    start = T0 + round(start_s * 1e9)
    return {
        "traceId": trace.rjust(32, "0"), "spanId": (own["id"] or f"{start_s}").rjust(16, "0"), "name": own["name"] or "span", "kind": 1,
        "parentSpanId": (own["parent"] or "").rjust(16, "0") if own["parent"] else "", "status": own["status"] or {}, "events": own["events"] or [],
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + round(took_s * 1e9)),
        "attributes": [attribute(k.replace("__", "."), v) for k, v in attributes.items()],
    }  # fmt: skip


def read(tmp_path, *spans):
    """Episodes of spans, each exported in a line of its own, as the collector's file exporter does."""
    lines = [{"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [one]}]}]} for one in spans]
    found, report = read_episodes([write_lines(tmp_path / "spans.jsonl", lines)])
    assert report.num_malformed == 0
    return found, report


def parts(role: str, *given: Any) -> dict[str, Any]:
    return {
        "role": role,
        "parts": [{"type": "text", "content": p} if isinstance(p, str) else p for p in given],
    }


def chat(trace: str, start_s: float, asked: list[Any], said: list[Any], **more: Any) -> dict[str, Any]:
    named = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(said)}
    return span(trace, start_s, 2, **{"gen_ai.operation.name": "chat", **named, **more})


def tool(trace: str, start_s: float, took_s: float, name: str = "get_weather", **more: Any) -> dict[str, Any]:
    return span(
        trace, start_s, took_s, **{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **more}
    )


USER, CALL = parts("user", "Weather?"), {"type": "tool_call", "id": "c1", "name": "get_weather", "arguments": {"at": "Paris"}}  # fmt: skip
ANSWER = {"type": "tool_call_response", "id": "c1", "response": "rainy"}
