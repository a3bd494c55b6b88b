"""The check of a call's arguments against the tool's schema. The part of JSON Schema that tools are declared
with, and no more.

Checked: required and unknown names, types, enum, of the top level. What a schema does not say is allowed;
nested values and other keywords are not looked at, so a call that passes may still be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.traces.core.coerce import as_list, as_object

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}  # fmt: skip


def schemas_by_name(tools: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Parameters by name, of schemas as OpenAI and TRL write them, wrapped in `function` or bare.

    >>> schemas_by_name([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    ...     {"name": "g"}])
    {'f': {'type': 'object'}, 'g': {}}
    """
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        inner = tool.get("function")
        function = inner if isinstance(inner, dict) else tool
        if isinstance(name := function.get("name"), str):
            schemas[name] = as_object(function.get("parameters", function.get("input_schema")))
    return schemas


def misfit(arguments: Any, schema: Mapping[str, Any]) -> str:
    """The first thing wrong with the arguments; empty when nothing is.

    >>> schema = {"properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False}
    >>> (misfit({}, schema), misfit({"q": 1}, schema), misfit({"q": "", "n": 1}, schema), misfit({"q": ""},
    ...     schema))
    ("'q' is missing", "'q' is not of type string", "'n' is not an argument", '')
    """
    values = {} if arguments is None else arguments
    if not isinstance(values, dict):
        return "the arguments are no object"
    for name in as_list(schema.get("required")):
        if name not in values:
            return f"{name!r} is missing"
    known = as_object(schema.get("properties"))
    for name, value in values.items():
        if name not in known:
            if schema.get("additionalProperties") is False:
                return f"{name!r} is not an argument"
        elif why := _misfit(value, known[name]):
            return f"{name!r} {why}"
    return ""


def _misfit(value: Any, schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    wanted = [name for name in names if name in _TYPES]
    if wanted and not any(_is(value, name) for name in wanted):
        return f"is not of type {' or '.join(wanted)}"
    choices = schema.get("enum")
    return "is none of its choices" if isinstance(choices, list) and value not in choices else ""


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
