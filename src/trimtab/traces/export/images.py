"""Images in training data: readers write a digest of each, so that attempts after different images are told apart; rows have `[image_url]`.

A digest in a row would be text to learn, and a model could only learn to make it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.traces.core.coerce import without_digests

_TEXTS = ("messages", "prompt", "completion", "chosen", "rejected", "completions")


def take_digests_off(rows: Sequence[dict[str, Any]]) -> int:
    """Write `[kind]` for every placeholder of the rows' columns, in place; how many rows had one. Messages that rows share stay as they are."""
    num_rows = 0
    for row in rows:
        found = {name: _plain(row[name]) for name in _TEXTS if name in row}
        row.update({name: value for name, (value, _) in found.items()})
        num_rows += any(count for _, count in found.values())
    return num_rows


def _plain(value: Any) -> tuple[Any, int]:
    """Of a text, a message, or a list of either; how many digests were taken off."""
    if isinstance(value, str):
        return without_digests(value)
    if isinstance(value, list):
        parts = [_plain(item) for item in value]
        count = sum(number for _, number in parts)
        return ([part for part, _ in parts], count) if count else (value, 0)
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        text, count = without_digests(value["content"])
        return ({**value, "content": text}, count) if count else (value, 0)
    return value, 0


def image_warnings(num_rows: int, num_all: int) -> list[str]:
    """That the rows lack what the agent saw."""
    if not num_rows:
        return []
    return [
        f"{num_rows} of {num_all} rows lack an image, or another part that is no text, which the log has: they say [image_url], or its kind, where it stood"
    ]
