"""Other people's JSON to our types: what a field may hold differs from log to log, and no value may stop a
reader."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from hashlib import blake2b
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)
FLAGS = {
    "true": True, "yes": True, "pass": True, "passed": True, "success": True,
    "false": False, "no": False, "fail": False, "failed": False, "failure": False,
}  # fmt: skip
"""Words for the outcome of an episode, in lower case."""
_NOT_DATA = ("type", "id", "detail", "cache_control")
"""Fields of a part: the same image has others of these elsewhere."""
_TEXTS = ("text", "input_text", "output_text")
_MARK = "blake2b:"
_PLACEHOLDER = re.compile(rf"\[([^\[\]\n]{{1,60}}) {_MARK}[0-9a-f]{{12}}\]")


def as_text(value: Any) -> str | None:
    """Text as it is; OpenAI's content parts joined; another value as JSON, or what says that it is nested too
    deeply; None stays None.

    >>> as_text([{"type": "text", "text": "a"}, {"type": "image_url",
    ...     "image_url": {"url": "https://x.org/1.png"}}])
    'a[image_url blake2b:e49b713fdb50]'
    >>> as_text({"ok": True})
    '{"ok": true}'
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return "".join(text if (text := text_of(part)) is not None else placeholder(part) for part in value)
    return _json(value, ensure_ascii=False)


def text_of(part: Mapping[str, Any]) -> str | None:
    """The text of a content part; None where it is none, as an image. The `content` of GenAI's `blob` is the
    data, in base64."""
    text = None if part.get("type") == "blob" else first_of(part, "text", "content", "output_text", "refusal")
    if text is None and part.get("type") in _TEXTS:
        return ""  # a part of text that says nothing
    return text if isinstance(text, str) else None


def placeholder(part: Mapping[str, Any]) -> str:
    """Return what stands in a text for another part: its kind, and a digest of its URL or data, so that two
    images differ.

    >>> placeholder({"type": "image_url"})
    '[image_url]'
    """
    kind = re.sub(r"[\[\]\n]", " ", str(part["type"]))[:60]
    data_fields = {name: value for name, value in part.items() if name not in _NOT_DATA and value is not None}
    if not data_fields:
        return f"[{kind}]"
    data = _json(data_fields, sort_keys=True, default=repr).encode()
    return f"[{kind} {_MARK}{blake2b(data, digest_size=6).hexdigest()}]"


def _json(value: Any, **how: Any) -> str:
    try:
        return json.dumps(value, **how)
    except RecursionError:  # read just within Python's limit, and written from deeper in the stack
        return "[JSON nested too deeply to be written]"


def without_digests(text: str) -> tuple[str, int]:
    """The text with `[kind]` for each placeholder, as training data have it; of how many a digest was taken
    off.

    >>> without_digests("See [image_url blake2b:e49b713fdb50].")
    ('See [image_url].', 1)
    """
    return _PLACEHOLDER.subn(r"[\1]", text) if _MARK in text else (text, 0)


def as_number(value: Any) -> float | None:
    """A number, also of a bool or of text that is one, infinite where it is too large for one; None for
    anything else.

    >>> as_number(True), as_number("0.5"), as_number("NaN"), as_number("high"), as_number(None)
    (1.0, 0.5, nan, None, None)
    """
    if type(value) is float:
        return value
    if isinstance(value, (bool, int, float, str)):
        try:
            return float(value)
        except ValueError:
            return None
        except OverflowError:
            return math.inf if isinstance(value, int) and value > 0 else -math.inf
    return None


def as_int(value: Any) -> int | None:
    """A whole number; None for anything else, a fraction included."""
    if value is None or (type(value) is int and -(2**53) < value < 2**53):
        return value
    number = as_number(value)
    whole = number is not None and abs(number) < 2**53 and number == int(number)
    return int(number) if number is not None and whole else None


def as_nanoseconds(value: Any) -> int | None:
    """Nanoseconds since 1970 of a whole number or of its digits, to the last one; None for anything else, 0
    included.

    No float holds today's nanoseconds: they lie beyond 2^53.

    >>> as_nanoseconds("1763740004000000001"), as_nanoseconds(5), as_nanoseconds("0"), as_nanoseconds("soon")
    (1763740004000000001, 5, None, None)
    """
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < 2**64 else None


def as_flag(value: Any) -> bool | None:
    """True or False, also of 0, 1 and the words; None for anything else.

    >>> as_flag(1.0), as_flag("false"), as_flag("passed"), as_flag("0.0"), as_flag("maybe")
    (True, False, True, False, None)
    """
    if isinstance(value, str) and value.lower() in FLAGS:
        return FLAGS[value.lower()]
    number = as_number(value)
    return bool(number) if number in (0, 1) else None


def as_label(value: Any) -> str | None:
    """An id or a name as text; None stays None."""
    return None if value is None else value if isinstance(value, str) else json.dumps(value)


def as_time(value: Any) -> float | None:
    """Seconds since 1970 of a number (also of milli-, micro- or nanoseconds) or of an ISO 8601 text; without
    a zone it is UTC.

    >>> as_time("1970-01-01T00:01:00Z"), as_time(1_700_000_000_000), as_time("soon")
    (60.0, 1700000000.0, None)
    """
    if type(value) is float and -1e12 < value < 1e12:
        return value
    number = as_number(value)
    if number is not None:
        if -1e12 < number < 1e12:
            return number
        if not math.isfinite(number):
            return None
        for size in (1e18, 1e15, 1e12):  # nano, micro, milli: 1e12 seconds lie 30,000 years ahead
            if abs(number) >= size:
                return number / (size / 1e9)
        return number
    if not isinstance(value, str):
        return None
    try:
        when = datetime.fromisoformat(value.strip().replace("Z", "+00:00").removesuffix(" UTC"))
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the JSON objects of a list, and none of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def numbers_in(value: Any) -> dict[str, float]:
    """Return the fields of a JSON object that are numbers, by name.

    >>> numbers_in({"score": "0.5", "passed": True, "note": "good"})
    {'score': 0.5, 'passed': 1.0}
    """
    numbers = {str(name): as_number(field) for name, field in as_object(value).items()}
    return {name: number for name, number in numbers.items() if number is not None}


def sum_known(values: Iterable[Number | None]) -> Number | None:
    """Return the sum of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def first_of(value: Mapping[str, Any], *names: str) -> Any:
    """The first of the fields that is there and not null."""
    for name in names:  # several times as fast as a generator, and asked of every message
        if (first := value.get(name)) is not None:
            return first
    return None
