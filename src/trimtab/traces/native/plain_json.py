"""A value of a user's program as JSON holds it: arrays and tensors as lists, records as objects, what is left
as text."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Mapping, Sequence, Set
from datetime import date, time
from typing import Any

import msgspec

from trimtab.traces.core.coerce import as_label

_DEEPEST = 200  # levels of lists and objects; Python reads 1,000, less those of its stack
_TOO_DEEP = "[nested too deeply to be written]"
_WIDEST = 10_000  # bits of a whole number; Python reads 4,300 digits


def plain(value: Any) -> Any:
    """The value in what JSON holds.

    Of arrays and tensors `tolist`, of errors type and message, of what we do not know `str`.

    >>> plain({1: (2, b"x"), "e": KeyError("k")})
    {'1': [2, 'x'], 'e': "KeyError: 'k'"}
    """
    try:
        return _plain(value, ())
    except RecursionError:
        return _TOO_DEEP


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() < _WIDEST else hex(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", errors="replace")
    if len(above) == _DEEPEST or id(value) in above:
        return _TOO_DEEP
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        return _object(value, inside)
    if isinstance(value, (Sequence, deque)) and not isinstance(value, memoryview):
        return [_plain(one, inside) for one in value]
    if isinstance(value, Set):
        return [_plain(one, inside) for one in sorted(value, key=repr)]
    opened = _opened(value)
    return str(value) if opened is value else _plain(opened, inside)


def _object(value: Mapping[Any, Any], above: tuple[int, ...]) -> dict[str, Any]:
    """Keys of one text, as 1 and "1", stay apart: the second is `1#2`."""
    fields: dict[str, Any] = {}
    for key, one in value.items():
        original = name = _key(key)
        number = 1
        while name in fields:
            number += 1
            name = f"{original}#{number}"
        fields[name] = _plain(one, above)
    return fields


def _key(key: Any) -> str:
    return as_label(plain(key)) or ("null" if key is None else "")


def _opened(value: Any) -> Any:
    """What stands in an object of a kind we know; the object itself where we know none."""
    if isinstance(value, type):
        return value
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}".removesuffix(": ")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for name in ("tolist", "item", "model_dump"):  # NumPy, torch; 0-d of others; pydantic
        if callable(method := getattr(value, name, None)):
            try:
                return method()
            except (TypeError, ValueError, RuntimeError):  # a tensor without data
                continue
    return value
