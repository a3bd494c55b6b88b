"""Rows that UTF-8, strict JSON and a model can take: no digests of images, no half surrogates, no NaN where
JSON has none.

Readers write a digest of each image, so that attempts after different images differ. In a row it would be
text to learn. Logs may contain half a surrogate (a text cut within an emoji), or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trimtab.traces.core.coerce import without_digests

_TEXT_COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected", "completions")
_TEXTS = "texts with half a surrogate, which no UTF-8 holds, replaced by U+FFFD"
_NUMBERS = "numbers that JSON does not have (NaN, infinity), null"


def strip_digests(rows: Sequence[dict[str, Any]]) -> int:
    """Write `[kind]` for every placeholder of the rows, in place. Return how many rows had one.

    Messages that rows share are not changed.
    """
    num_rows = 0
    for row in rows:
        stripped = {name: _stripped(row[name]) for name in _TEXT_COLUMNS if name in row}
        row.update({name: value for name, (value, _) in stripped.items()})
        num_rows += any(count for _, count in stripped.values())
    return num_rows


def _stripped(value: Any) -> tuple[Any, int]:
    """Return a text, a message or a list of either without digests, and the number of digests."""
    if isinstance(value, str):
        return without_digests(value)
    if isinstance(value, list):
        parts = [_stripped(item) for item in value]
        count = sum(number for _, number in parts)
        return ([part for part, _ in parts], count) if count else (value, 0)
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        text, count = without_digests(value["content"])
        return ({**value, "content": text}, count) if count else (value, 0)
    return value, 0


def make_encodable(
    rows: Sequence[dict[str, Any]], json_columns: Sequence[str] | None = None
) -> dict[str, int]:
    """Replace half surrogates by U+FFFD, and non-finite numbers in `json_columns` (None: in all) by null, in
    place.

    Return the counts.

    >>> rows = [{"prompt": [{"content": "cut \\ud83d"}], "score": float("nan")}]
    >>> make_encodable(rows, ["prompt"])
    {'texts with half a surrogate, which no UTF-8 holds, replaced by U+FFFD': 1}
    >>> rows
    [{'prompt': [{'content': 'cut \ufffd'}], 'score': nan}]
    >>> make_encodable(rows), rows[0]["score"]
    ({'numbers that JSON does not have (NaN, infinity), null': 1}, None)
    """
    texts = numbers = 0
    for row in rows:
        left: list[tuple[Any, bool]] = [(row, json_columns is None)]
        while left:
            parent, strict = left.pop()
            for key, value in list(enumerate(parent) if isinstance(parent, list) else parent.items()):
                if isinstance(value, (dict, list)):
                    left.append((value, strict or (parent is row and key in (json_columns or ()))))
                elif isinstance(value, str):
                    if not value.isascii() and (whole := _without_half_surrogates(value)) != value:
                        parent[key], texts = whole, texts + 1
                elif strict and isinstance(value, float) and not math.isfinite(value):
                    parent[key], numbers = None, numbers + 1
            for key in [k for k in parent if not k.isascii()] if isinstance(parent, dict) else ():
                if (whole := _without_half_surrogates(key)) != key:
                    parent[whole], texts = parent.pop(key), texts + 1
    return {what: count for what, count in ((_TEXTS, texts), (_NUMBERS, numbers)) if count}


def _without_half_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each half. Two adjacent halves are the character they mean."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
