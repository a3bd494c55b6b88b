"""Messages in the events of a model's span: one each, or all in one; as JSON, as nested values, as Azure's body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.traces.spans import attribute, parts, read, span

CALL = {"id": "c1", "type": "function", "function": {"name": "w", "arguments": '{"at": "Paris"}'}}


def event(name: str, **told: Any) -> dict[str, Any]:
    return {"name": name, "attributes": [attribute(key, value) for key, value in told.items()]}


def azure(name: str, **told: Any) -> dict[str, Any]:
    told = {key: json.loads(v) if key in ("message", "tool_calls") else v for key, v in told.items()}
    return event(name, **{"gen_ai.system": "az.ai.inference", "gen_ai.event.content": json.dumps(told)})


def model(start: float, *events: Any, **more: Any) -> dict[str, Any]:
    return span("a", start, 1, events=list(events), **{"gen_ai.operation.name": "chat", **more})


@pytest.mark.parametrize("of", [event, azure])
def test_an_event_a_message(tmp_path, of):
    asked = [of("gen_ai.system.message", content="Be nice."), of("gen_ai.user.message", content="Weather?")]
    calls = of(
        "gen_ai.choice", index=0, finish_reason="tool_calls", message=json.dumps({"tool_calls": [CALL]})
    )
    again = [
        *asked,
        of("gen_ai.assistant.message", tool_calls=json.dumps([CALL])),
        of("gen_ai.tool.message", id="c1", content="Error: bad"),
    ]
    ends = [
        of("gen_ai.choice", index=i, finish_reason="stop", message=json.dumps({"content": text}))
        for i, text in enumerate(("Sorry.", "Alas."))
    ]
    (found,), report = read(tmp_path, model(1, *asked, calls), model(4, *again, *ends))
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "Be nice."),
        ("user", "Weather?"),
        ("assistant", None),
        ("assistant", "Sorry."),
    ]
    assert [(c.name, c.arguments, c.result, c.error) for c in found.calls] == [
        ("w", {"at": "Paris"}, "Error: bad", "Error: bad")
    ]
    assert found.stop_reason == "stop"
    assert report.notes == {"further answers to one request (n > 1), left out": 1}


def test_all_messages_in_one_event_as_nested_values(tmp_path):
    details = {
        "name": "gen_ai.client.inference.operation.details",
        "attributes": [nested("gen_ai.input.messages", [parts("user", "Weather?")]), nested("gen_ai.output.messages", [parts("assistant", "Dry.")]), nested("gen_ai.system_instructions", [{"type": "text", "content": "Be nice."}])],
    }  # fmt: skip
    (found,), report = read(tmp_path, model(1, details))
    assert [(t.role, t.content) for t in found.turns] == [
        ("system", "Be nice."),
        ("user", "Weather?"),
        ("assistant", "Dry."),
    ]
    assert not report.notes


def test_what_the_attributes_say_is_not_taken_from_events_too(tmp_path):
    said = {
        "gen_ai.input.messages": json.dumps([parts("user", "Weather?")]),
        "gen_ai.output.messages": json.dumps([parts("assistant", "Dry.")]),
    }
    events = [
        event("gen_ai.user.message", content="cut of"),
        event("gen_ai.choice", index=0, content="cut of"),
    ]
    (found,), _ = read(tmp_path, model(1, *events, **said))
    assert [t.content for t in found.turns] == ["Weather?", "Dry."]
    only = {"gen_ai.input.messages": said["gen_ai.input.messages"]}
    (found,), _ = read(tmp_path, model(1, event("gen_ai.choice", index=0, content="Wet."), **only))
    assert [t.content for t in found.turns] == ["Weather?", "Wet."]


def nested(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": _any(value)}


def _any(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [nested(k, v) for k, v in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any(one) for one in value]}}
    return {"stringValue": value}
