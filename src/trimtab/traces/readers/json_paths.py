"""JSON paths of `--map`: keys and indices, `[*]` for each element of a list, a key `*` for each episode of an
object or a list."""

from __future__ import annotations

import re
from typing import Any

NOTHING = object()
"""What stands at a path where nothing does."""
_PART = re.compile(r"([^.\[\]]+)|\[(-?\d+|\*)\]")


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path; `NOTHING` where there is none.

    >>> value_at({"a": [{"b c": 7}]}, "$.a[0].b c"), value_at({"a": [{"b": 1}, {}]}, "a[*].b")
    (7, [1, None])
    """
    return _follow(value, _PART.findall(path.removeprefix("$")))


def _follow(value: Any, parts: list[tuple[str, str]]) -> Any:
    for number, (key, index) in enumerate(parts):
        if index == "*":
            if not isinstance(value, list):
                return NOTHING
            each = [_follow(one, parts[number + 1 :]) for one in value]
            return (
                [None if one is NOTHING else one for one in each]
                if each.count(NOTHING) < len(each)
                else NOTHING
            )
        if key and isinstance(value, dict) and key in value:
            value = value[key]
        elif index and isinstance(value, list) and -len(value) <= int(index) < len(value):
            value = value[int(index)]
        else:
            return NOTHING
    return value


def at_star(path: str) -> tuple[str, str] | None:
    """The parts of a path before and after its key `*`; None where it has none.

    >>> at_star("runs.*.turns"), at_star("*"), at_star("a[*].b")
    (('runs', 'turns'), ('', ''), None)
    """
    keys = path.removeprefix("$").lstrip(".").split(".")
    if "*" not in keys:
        return None
    where = keys.index("*")
    return ".".join(keys[:where]), ".".join(keys[where + 1 :])
