"""Tools as logs declare them to OpenAI's form: `{"type": "function", "function": {"name": ..., "parameters":
...}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.traces.core.coerce import first_of
from trimtab.traces.core.json_text import BadJson, parse_json


def tools_of(raw: Any) -> list[dict[str, Any]] | None:
    """The tools of a list, or of its JSON text; those without a name stay as they are, and names are tools
    without a schema. None for anything else, a list that holds none of these included.

    Bare ones (verifiers, Inspect, the Responses API), Anthropic's `input_schema`, MCP's `inputSchema`,
    Bedrock's `toolSpec` and Gemini's `functionDeclarations` are wrapped.

    >>> tools_of([{"name": "f", "input_schema": {"type": "object"}}])
    [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object'}}}]
    """
    try:
        listed = parse_json(raw) if isinstance(raw, str) else raw
    except BadJson:
        return None
    if not isinstance(listed, list):
        return None
    declared = [_named(tool) if isinstance(tool, str) else tool for tool in listed]
    schemas = [_openai(one) for tool in declared if isinstance(tool, dict) for one in _each(tool)]
    return None if listed and not schemas else schemas


def _named(text: str) -> Any:
    """Return a tool of which only the name is known, or the JSON text of one; None of no name."""
    if text.lstrip().startswith("{"):
        try:
            return parse_json(text)
        except BadJson:
            return None
    return {"name": text.strip()} if text.strip() else None


def _each(tool: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools in it: one, or Gemini's declarations; those of Bedrock and OpenAI's custom ones out of their
    wrapper."""
    declared = first_of(tool, "functionDeclarations", "function_declarations")
    if isinstance(declared, list):
        return [_lowered(one) for one in declared if isinstance(one, dict)]
    inner = first_of(tool, "toolSpec", "custom")
    return [inner if isinstance(inner, dict) and isinstance(inner.get("name"), str) else tool]


def _lowered(value: Any) -> Any:
    """A schema of Gemini's, whose types are `OBJECT` and `STRING`."""
    if isinstance(value, list):
        return [_lowered(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {k: v.lower() if k == "type" and isinstance(v, str) else _lowered(v) for k, v in value.items()}


def _openai(tool: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return dict(tool)
    function: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    parameters = first_of(
        tool, "parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema"
    )
    if isinstance(parameters, dict) and isinstance(parameters.get("json"), dict):  # Bedrock
        parameters = parameters["json"]
    if parameters is not None:
        function["parameters"] = parameters
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}
