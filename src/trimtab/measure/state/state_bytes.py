"""Bytes of a slice state: its counts and notes, its summaries as one bundle, then states that have bytes of
their own.

    magic (8) | counts (5 int64, 2 float64) | excluded | notes | bundle | name, bytes of each other summary

Every text and blob is preceded by its length. Bytes of before version 2 had no magic and framed every summary
on its own; they are still read.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from trimtab.errors import SummaryError
from trimtab.stats import Summary, bundle, unbundle

MAGIC = b"TTSTATE\x02"  # as the number of tokens with which version 1 began: 1.5e17
_HEAD = struct.Struct("<qqqqqdd")
_SIZE = struct.Struct("<I")

Head = tuple[Any, ...]


def write_state(
    head: Head, excluded: Mapping[str, int], notes: Mapping[str, str], summaries: Mapping[str, Any]
) -> bytes:
    """Bytes of a state's counts, what was excluded, notes and summaries."""
    bundled = {key: summary for key, summary in summaries.items() if isinstance(summary, Summary)}
    chunks = [_dump(excluded).encode(), _dump(notes).encode(), bundle(bundled)]
    for key, summary in summaries.items():
        if key not in bundled:
            chunks += [key.encode(), summary.to_bytes()]
    return MAGIC + _HEAD.pack(*head) + b"".join(_SIZE.pack(len(chunk)) + chunk for chunk in chunks)


def read_state(
    data: bytes, classes: Mapping[str, type[Any]], wanted: Collection[str] | None = None
) -> tuple[Head, dict[str, int], dict[str, str], dict[str, Any]]:
    """Inverse of `write_state`, with all summaries or the `wanted` ones; `classes` gives the class of
    `<what>/<class>`.

    SummaryError when the bytes are not a slice state.
    """
    start = len(MAGIC) if data.startswith(MAGIC) else 0
    try:
        head = _HEAD.unpack_from(data, start)
        excluded, notes, *chunks = _chunks(data, start + _HEAD.size)
        summaries: dict[str, Any] = {}
        if start:
            summaries = unbundle(chunks.pop(0), lambda name: classes.get(name.rsplit("/", 1)[-1]), wanted)
        for key, blob in zip(chunks[::2], chunks[1::2], strict=True):
            name = key.decode()
            if wanted is None or name in wanted:
                summaries[name] = classes[name.rsplit("/", 1)[1]].from_bytes(blob)
        return head, {k: int(v) for k, v in _load(excluded).items()}, _load(notes), summaries
    except (struct.error, IndexError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise SummaryError(f"not the bytes of a slice state: {error}") from error


class Parts(NamedTuple):
    """The bytes of a slice state, split but not read: for many states that are read together."""

    head: Head
    excluded: bytes
    notes: bytes
    bundle: bytes
    others: tuple[tuple[str, bytes], ...]  # name and bytes of each summary outside the bundle


def split_state(data: bytes) -> Parts:
    """Return the parts of what `write_state` wrote. SummaryError for other bytes, those of version 1
    included."""
    if not data.startswith(MAGIC):
        raise SummaryError("not the bytes of a slice state of version 2")
    try:
        chunks, offset = [], len(MAGIC) + _HEAD.size
        while offset < len(data):  # as `_chunks`, in two thirds of its time
            end = offset + 4 + int.from_bytes(data[offset : offset + 4], "little")
            chunks.append(data[offset + 4 : end])
            offset = end
        if offset != len(data):
            raise SummaryError("not the bytes of a slice state: cut short")
        excluded, notes, bundled, *others = chunks
        named = tuple((key.decode(), blob) for key, blob in zip(others[::2], others[1::2], strict=True))
        return Parts(_HEAD.unpack_from(data, len(MAGIC)), excluded, notes, bundled, named)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise SummaryError(f"not the bytes of a slice state: {error}") from error


def read_texts(parts: Parts) -> tuple[dict[str, int], dict[str, str]]:
    """Return what was excluded, and the notes."""
    try:
        return {k: int(v) for k, v in _load(parts.excluded).items()}, _load(parts.notes)
    except (ValueError, UnicodeDecodeError) as error:
        raise SummaryError(f"not the bytes of a slice state: {error}") from error


def _chunks(data: bytes, offset: int) -> Iterator[bytes]:
    while offset < len(data):
        (size,) = _SIZE.unpack_from(data, offset)
        offset += _SIZE.size
        if offset + size > len(data):
            raise SummaryError("not the bytes of a slice state: cut short")
        yield data[offset : offset + size]
        offset += size


def _dump(mapping: Mapping[str, Any]) -> str:
    return "\x1e".join(f"{key}\x1f{value}" for key, value in sorted(mapping.items()))


def _load(data: bytes) -> dict[str, str]:
    text = data.decode()
    pairs = [item.split("\x1f", 1) for item in text.split("\x1e")] if text else []
    return dict(pairs)
