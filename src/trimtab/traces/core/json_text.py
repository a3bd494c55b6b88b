"""One JSON text to its value, as lenient as Python writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


class BadJson(ValueError):
    """Text that is not a JSON value; says why in a few words."""


def parse_json(text: bytes | str) -> Any:
    """A JSON value, NaN and Infinity allowed. BadJson says why there is none.

    >>> parse_json('{"reward": NaN}'), parse_json(b"[1]")
    ({'reward': nan}, [1])
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise BadJson(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise BadJson(f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from error
    except RecursionError as error:
        raise BadJson("nested too deep") from error
    except ValueError as error:
        raise BadJson(f"not JSON we read: {str(error)[:80]}") from error


def json_or_text(raw: Any) -> Any:
    """Return the JSON value of a text. Text that is not JSON, and values of other types, stay as they are.

    >>> json_or_text("[1]"), json_or_text("a"), json_or_text(2)
    ([1], 'a', 2)
    """
    try:
        return parse_json(raw) if isinstance(raw, str) else raw
    except BadJson:
        return raw


def json_of_file(path: Path, max_bytes: int = 2**26) -> Any:
    """Return the JSON value of a file. None where it is missing, damaged or larger than `max_bytes`."""
    try:
        return parse_json(path.read_bytes()) if path.stat().st_size <= max_bytes else None
    except (OSError, ValueError):
        return None
