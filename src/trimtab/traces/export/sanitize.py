"""Rows in what UTF-8 and strict JSON hold. Logs may hold half a surrogate (a text cut within an emoji), or NaN where JSON has no such number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_TEXTS = "texts with half a surrogate, which no UTF-8 holds, replaced by U+FFFD"
_NUMBERS = "numbers that JSON does not have (NaN, infinity), null"


def encodable(rows: Sequence[dict[str, Any]], json_columns: Sequence[str] | None = None) -> dict[str, int]:
    """Replace, in place, half a surrogate by U+FFFD, and in `json_columns` (None: in all) numbers that are none by null; how many of each.

    >>> rows = [{"prompt": [{"content": "cut \\ud83d"}], "score": float("nan")}]
    >>> encodable(rows, ["prompt"]), rows
    ({'texts with half a surrogate, which no UTF-8 holds, replaced by U+FFFD': 1}, [{'prompt': [{'content': 'cut \ufffd'}], 'score': nan}])
    >>> encodable(rows), rows[0]["score"]
    ({'numbers that JSON does not have (NaN, infinity), null': 1}, None)
    """
    texts = numbers = 0
    for row in rows:
        left: list[tuple[Any, bool]] = [(row, json_columns is None)]
        while left:
            holder, strict = left.pop()
            items = list(enumerate(holder) if isinstance(holder, list) else holder.items())
            for key, value in items:
                if isinstance(value, (dict, list)):
                    left.append((value, strict or (holder is row and key in (json_columns or ()))))
                elif isinstance(value, str):
                    if not value.isascii() and (whole := _whole(value)) != value:
                        holder[key], texts = whole, texts + 1
                elif strict and isinstance(value, float) and not math.isfinite(value):
                    holder[key], numbers = None, numbers + 1
            for key in [k for k in holder if not k.isascii()] if isinstance(holder, dict) else ():
                if (whole := _whole(key)) != key:
                    holder[whole], texts = holder.pop(key), texts + 1
    return {what: count for what, count in ((_TEXTS, texts), (_NUMBERS, numbers)) if count}


def _whole(text: str) -> str:
    """Without half surrogates; two halves that stand together are the character they mean."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
