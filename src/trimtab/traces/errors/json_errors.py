"""What a JSON object that reports an error says, also one of which a log kept only the beginning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trimtab.traces.core.json_text import BadJson, parse_json

_NAMES = ("message", "msg", "detail", "error", "reason", "type", "code", "status", "status_code")
"""Of the fields that say it, the first of these counts."""
_INNER = ("errors", "detail", "error")
_FIELD = re.compile(rf'"({"|".join(_NAMES)})"\s*:\s*(?:"((?:[^"\\]|\\.)*)|(-?\d+))')
_ID = re.compile(r"\S*\d\S*")


def said_by(text: str) -> str:
    """The message in the text of an object, or what else names the error; a number with its field, as `code
    500`. Where nothing does, the object's keys; empty for other text.

    >>> (said_by('{"error": {"message": "no seats", "code": 9}}'), said_by('{"code":500}'),
    ...     said_by('{"at": 7}'))
    ('no seats', 'code 500', '{at}')
    >>> said_by('{"code":9,"message":"no seats","trace":["a.py li')
    'no seats'
    """
    if not text.startswith("{"):
        return ""
    try:
        value = parse_json(text)
    except BadJson:
        fields = {}
        for name, quoted, number in reversed(_FIELD.findall(text)):
            fields[name] = int(number[:18]) if number else _unescaped(quoted)
        return _first(fields)
    return _first(_flat(value)) or _keys(value)


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """The object's fields, and those of the error in it."""
    fields = dict(value)
    for name in _INNER:
        inner = fields.get(name)
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict):
            fields |= {key: one for key, one in inner.items() if one not in (None, "")}
            if name not in inner:
                del fields[name]
        elif isinstance(inner, str):
            fields[name] = inner
    return fields


def _first(fields: Mapping[str, Any]) -> str:
    for name in _NAMES:
        message = fields.get(name)
        if isinstance(message, str) and message.strip():
            number = message.strip().isdecimal()
            return f"{name} {message.strip()}" if number else message
        if isinstance(message, int) and not isinstance(message, bool):
            return f"{name} {message}"
    return ""


def _keys(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(_ID.sub("#", key) for key in value) + "}"


def _unescaped(text: str) -> str:
    try:
        return str(parse_json(f'"{text}"'))
    except BadJson:
        return text
