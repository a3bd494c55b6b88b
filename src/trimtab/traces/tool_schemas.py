"""Tools as logs declare them to OpenAI's form: `{"type": "function", "function": {"name": ..., "parameters": ...}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.traces.json_records import BadJson, parse_json
from trimtab.traces.values import first_of

__all__ = ["tools_of"]


def tools_of(raw: Any) -> list[dict[str, Any]] | None:
    """The tools of a list, or of its JSON text; those without a name stay as they are. None for anything else.

    Bare ones (verifiers, Inspect, the Responses API), Anthropic's `input_schema` and MCP's `inputSchema` are wrapped.

    >>> tools_of([{"name": "f", "input_schema": {"type": "object"}}])
    [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object'}}}]
    """
    try:
        given = parse_json(raw) if isinstance(raw, str) else raw
    except BadJson:
        return None
    return [_openai(tool) for tool in given if isinstance(tool, dict)] if isinstance(given, list) else None


def _openai(tool: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return dict(tool)
    function: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    parameters = first_of(tool, "parameters", "input_schema", "inputSchema")
    if parameters is not None:
        function["parameters"] = parameters
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}
