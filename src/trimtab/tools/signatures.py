"""JSON schema of a Python function's arguments, from its signature and its docstring."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


def function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of a function's arguments.

    Args:
        function: Annotated as str, int, float, bool, list, dict, Literal, or unions of these; anything else,
            and what has no annotation, admits every value. Descriptions come from the docstring's `Args:`.

    Returns:
        An object schema without additional properties, but for a function that takes `**arguments`.

    Example:
        >>> def search(query: str, limit: int = 3) -> str: ...
        >>> function_schema(search)["properties"], function_schema(search)["required"]
        ({'query': {'type': 'string'}, 'limit': {'type': 'integer', 'default': 3}}, ['query'])
    """
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):  # annotations that name nothing here
        hints = {}
    texts = _argument_texts(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    more = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            more = True
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        schema = _schema(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, (str, int, float, bool)):
            schema["default"] = parameter.default
        if name in texts:
            schema["description"] = texts[name]
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inside)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one) for one in inside]}
    if hint is list or origin in (list, tuple, set, frozenset):
        return {"type": "array", **({"items": _schema(inside[0])} if inside else {})}
    if hint is dict or origin in (dict, Mapping):
        values = _schema(inside[1]) if len(inside) == 2 else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    return {}


def _argument_texts(doc: str) -> dict[str, str]:
    _, _, section = doc.partition("Args:\n")
    texts: dict[str, str] = {}
    for line in section.splitlines():
        if line and not line[0].isspace():
            break
        if match := _ARGUMENT.match(line):
            texts[match[1]] = match[2].strip()
    return texts
