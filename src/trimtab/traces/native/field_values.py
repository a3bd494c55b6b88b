"""What a loop gives, as the fields of our records hold it: ids are text, rewards numbers, NumPy's and torch's
values Python's.

What has no plain meaning is refused at once and by its field's name, so that no line is written that cannot
be read.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from trimtab.errors import TraceError
from trimtab.traces.core.coerce import as_flag, as_int, as_label, as_number, as_text, as_time
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.tool_schemas import tools_of
from trimtab.traces.errors.detect import error_text, error_words, says_fine, says_no_error
from trimtab.traces.native.plain_json import plain


def _one(value: Any) -> Any:
    """A scalar's value, also that of an array of one."""
    scalar = plain(value)
    while isinstance(scalar, list) and len(scalar) == 1 and hasattr(value, "tolist"):
        scalar = scalar[0]
    return scalar


class _Field(NamedTuple):
    """`read` gives None where the value does not fit; it takes the value and the path of its field."""

    wanted: str
    read: Callable[[Any, str], Any]


def _scalar(wanted: str, read: Callable[[Any], Any]) -> _Field:
    return _Field(wanted, lambda value, _at: read(_one(value)))


def _seconds(read: Callable[[Any], float | None]) -> Callable[[Any, str], float | None]:
    def seconds(value: Any, _at: str) -> float | None:
        try:
            if isinstance(value, timedelta):
                return value.total_seconds()
            return value.timestamp() if isinstance(value, datetime) else read(_one(value))
        except (ValueError, OverflowError, OSError):  # a date that no clock of this machine shows
            return None

    return seconds


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -(2**63) <= value < 2**64 else None
    return as_int(value)


def _version(value: Any) -> int | str | None:
    whole = None if isinstance(value, (bool, str)) else _whole(value)
    return as_label(value) if whole is None else whole


def _error(value: Any) -> str | None:
    """Its text; of an object the message; `error` where it is only that there was one, empty where the value
    says that there was none."""
    error_value = _error_value(_one(value))
    return "" if error_value is None else error_words(error_value) or "error"


def _error_value(value: Any) -> Any:
    """What a plain value says of an error: of an object its message or type, if one says anything; None where
    it says that there was none."""
    if isinstance(value, dict):
        inner = (_error_value(value.get(name)) for name in ("message", "type"))
        text = next((one for one in inner if one is not None), None)
        return text if text is not None or all(_error_value(one) is None for one in value.values()) else value
    missing = isinstance(value, float) and math.isnan(value)
    return None if missing or says_no_error(value) else value


def call_error(error: Any, result: str | None) -> tuple[str, str]:
    """The error of a call and who says so (`Call.error_from`), of what a loop gave as its error and of its
    result's text, as chat logs are read.

    >>> call_error(None, "Error: HTTP 503"), call_error(False, "Error: HTTP 503")
    (('Error: HTTP 503', 'text'), ('', 'log'))
    >>> call_error(True, "HTTP 503"), call_error("none", "ok")
    (('HTTP 503', 'log'), ('', ''))
    """
    value = _one(error)
    error_value = _error_value(value)
    if error_value is not None:
        return error_words(error_value) or _error(result) or "error", "log"
    if says_fine(value):
        return "", "log"
    text = error_text(result)
    return text, "text" if text else ""


def _tools(value: Any, _at: str) -> list[dict[str, Any]] | None:
    tools = plain(value)
    all_objects = not isinstance(tools, list) or all(isinstance(tool, dict) for tool in tools)
    return tools_of(tools) if all_objects else None


def _mapping(value: Any, _at: str) -> dict[str, Any] | None:
    return mapping if isinstance(mapping := plain(value), dict) else None


def _parts(value: Any, at: str) -> dict[str, float] | None:
    parts = _mapping(value, at)
    return (
        None if parts is None else {name: _fit(_NUMBER, one, f"{at}.{name}") for name, one in parts.items()}
    )


def _same(value: Any) -> Any:
    return value


def _list_of(field: _Field, missing: Any = None) -> Callable[[Any, str], list[Any] | None]:
    def read(value: Any, at: str) -> list[Any] | None:
        values = plain(list(value) if isinstance(value, Iterator) else value)
        if not isinstance(values, list):
            return None
        return [
            missing if one is None and missing is not None else _fit(field, one, f"{at}[{i}]")
            for i, one in enumerate(values)
        ]

    return read


def _structs(kind: type[Call] | type[Turn]) -> Callable[[Any, str], list[Any] | None]:
    def read(value: Any, at: str) -> list[Any] | None:
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, kind) for one in value):
            return None
        return [kind(**fitting(kind, fields_of(one), f"{at}[{i}].")) for i, one in enumerate(value)]

    return read


_LABEL, _TEXT = _scalar("text", as_label), _Field("text", lambda value, _at: as_text(plain(value)))
_NUMBER = _Field("a number", _seconds(as_number))
_TIME, _FLAG = _Field("a time", _seconds(as_time)), _scalar("true or false", as_flag)
_INT, _VERSION = _scalar("a whole number", _whole), _scalar("a number or text", _version)
_JSON = _Field("anything", lambda value, _at: plain(value))
_INTS = _Field("a list of whole numbers", _list_of(_INT))
_NUMBERS = _Field("a list of numbers", _list_of(_NUMBER, missing=float("nan")))
_OBJECT = _Field("an object", _mapping)
_FIELDS: dict[type, dict[str, _Field]] = {
    Call: {
        "name": _LABEL, "arguments": _JSON, "bad_arguments": _TEXT, "id": _LABEL, "result": _TEXT,
        "error": _Field("text", lambda value, _at: _error(value)), "error_from": _LABEL, "latency_s": _NUMBER,
        "time": _TIME, "step": _INT,
    },
    Turn: {
        "role": _LABEL, "content": _TEXT, "reasoning": _TEXT,
        "calls": _Field("a list of Call", _structs(Call)), "step": _INT, "name": _LABEL,
        "time": _TIME, "tokens": _INT, "token_ids": _INTS, "logprobs": _NUMBERS, "mask": _INTS,
        "log_ratios": _NUMBERS,
        "token_texts": _Field("a list of texts", _list_of(_LABEL)), "policy_version": _VERSION,
    },
    Episode: {
        "id": _LABEL, "turns": _Field("a list of Turn", _structs(Turn)), "task": _LABEL, "group": _LABEL,
        "reward": _NUMBER,
        "reward_parts": _Field("an object of numbers", _parts), "success": _FLAG, "stop_reason": _LABEL,
        "tools": _Field("a list of JSON objects", _tools), "model": _LABEL, "policy_version": _VERSION,
        "step": _INT, "time": _TIME,
        "duration_s": _NUMBER, "tokens": _INT, "cost": _NUMBER, "log_ratio_of": _LABEL, "source": _LABEL,
        "for_training": _FLAG, "extra": _OBJECT,
    },
}  # fmt: skip
_DEFAULTS: dict[type, dict[str, Callable[[], Any]]] = {
    kind: {
        one.name: one.default_factory if one.default is msgspec.NODEFAULT else partial(_same, one.default)
        for one in msgspec.structs.fields(kind)
        if not one.required
    }
    for kind in _FIELDS
}
_NAMES = {Call: "a call", Turn: "a turn", Episode: "an episode"}


def fields_of(record: msgspec.Struct) -> dict[str, Any]:
    """The fields of a record, its own values."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def fitting(
    kind: type[Call] | type[Turn] | type[Episode], values: Mapping[str, Any], at: str = ""
) -> dict[str, Any]:
    """The fields of a Call, Turn or Episode as its reader takes them; None is the field's default.

    `at`: the path before the name.

    TraceError for a field that there is none of, and for a value without a plain meaning there.

    >>> fitting(Episode, {"id": 3, "reward": "0.5", "success": 1})
    {'id': '3', 'reward': 0.5, 'success': True}
    """
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _FIELDS[kind]:
            where = "; put it into extra" if kind is Episode else ""
            raise TraceError(f"{_NAMES[kind]} has no field {name!r}{where}")
        empty = value is None and name in _DEFAULTS[kind]
        fields[name] = _DEFAULTS[kind][name]() if empty else _fit(_FIELDS[kind][name], value, f"{at}{name}")
    return fields


def as_json(value: Any, at: str) -> Any:
    """The value in what JSON holds (`plain`).

    TraceError, by its path `at`, for one whose own methods fail.
    """
    return _fit(_JSON, value, at)


def _fit(field: _Field, value: Any, at: str) -> Any:
    try:
        fitted = field.read(value, at)
    except TraceError:
        raise
    except Exception as error:  # what a user's class raises as it is asked for its text or its items
        raise TraceError(
            f"{at} must be {field.wanted}, and asking it raises {type(error).__name__}"
        ) from error
    if fitted is None and field is not _JSON:
        raise TraceError(f"{at} must be {field.wanted}, and is {reprlib.repr(value)}")
    return fitted
