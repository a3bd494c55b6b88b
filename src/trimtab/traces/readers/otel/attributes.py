"""OTLP's attributes to plain values, and flat names to what they spell."""

from __future__ import annotations

from typing import Any

from trimtab.traces.core.coerce import as_int
from trimtab.typing import Json


def attributes_of(raw: Any) -> dict[str, Any]:
    """The attributes of a span or event by name; empty for what is no list of them."""
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
            return attributes_of(value.get("values")) if isinstance(value, dict) else {}
        return value
    return None


def nested(attributes: Json, prefix: str) -> list[Any]:
    """The list that flat attributes `prefix.0.a.b` spell; numbers are places.

    >>> nested({"m.0.role": "user", "m.1.calls.0.id": "c", "other": 1}, "m")
    [{'role': 'user'}, {'calls': [{'id': 'c'}]}]
    """
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            place, *keys = root, *name[len(prefix) + 1 :].split(".")
            for key in keys[:-1]:
                inner = place.setdefault(key, {})
                place = inner if isinstance(inner, dict) else {}
            place[keys[-1]] = value
    whole = _listed(root)
    return whole if isinstance(whole, list) else []


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() and len(key) < 10 for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(inner) for key, inner in value.items()}
