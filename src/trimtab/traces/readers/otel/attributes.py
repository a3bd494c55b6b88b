"""Attributes of OTLP as plain values, and flat attribute names as the nested lists they encode."""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_int, as_list, as_object, objects_in
from trimtab.typing import Json


def attributes_of(raw: Any) -> dict[str, Any]:
    """Return the attributes of a span or event by name. Anything but a list gives an empty object."""
    items = ((item.get("key"), item.get("value")) for item in objects_in(raw))
    return {key: _value(value) for key, value in items if isinstance(key, str)}


def _value(raw: Any) -> Any:
    """Return the value of an OTLP AnyValue. Whole numbers come as text."""
    if not isinstance(raw, dict):
        return raw
    kind, value = next(iter(raw.items()), ("", None))
    if kind == "intValue":
        return as_int(value)
    if kind == "arrayValue":
        return [_value(item) for item in as_list(as_object(value).get("values"))]
    return attributes_of(as_object(value).get("values")) if kind == "kvlistValue" else value


def nested(attributes: Json, prefix: str) -> list[Any]:
    """Return the list that flat attributes such as `prefix.0.a.b` encode. Numbers in a name are positions.

    >>> nested({"m.0.role": "user", "m.1.calls.0.id": "c", "other": 1}, "m")
    [{'role': 'user'}, {'calls': [{'id': 'c'}]}]
    """
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            node, *keys = root, *name[len(prefix) + 1 :].split(".")
            for key in keys[:-1]:
                inner = node.setdefault(key, {})
                node = inner if isinstance(inner, dict) else {}
            node[keys[-1]] = value
    return as_list(_with_lists(root))


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() and len(key) < 10 for key in value):
        return [_with_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _with_lists(inner) for key, inner in value.items()}
