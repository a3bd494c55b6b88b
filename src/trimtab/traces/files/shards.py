"""A log of lines cut into byte ranges that end with a line, so that workers can share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trimtab.traces.files.decompress import GZIP, ZSTD
from trimtab.traces.files.find import open_bytes
from trimtab.traces.files.lines import CUT, MAX_LINE_BYTES, read_lines

SHARD_BYTES = 16 * 2**20
"""Bytes of a shard, and what it takes to its line's end."""

BOM = b"\xef\xbb\xbf"
_PIECE = 2**20


@dataclass(frozen=True)
class Shard:
    """Whole lines of a file, or with an `end` of -1 the whole file, whatever it is."""

    file: str  # as the user named it
    path: str = ""  # of the plain bytes: the file's own, or a decompressed copy's
    start: int = 0
    end: int = -1
    lines_before: int = 0
    failure: str = ""  # why the file cannot be read on after it
    failed_line: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of text."""
        return self.end - self.start if self.end >= 0 else Path(self.file).stat().st_size


class RawLine(NamedTuple):
    """A line that is not blank: its number in the file, where it begins and ends, and why it cannot be
    used."""

    number: int
    offset: int
    text: bytes
    ended: bool = True
    failure: str = ""


def cut(file: str, path: str, failure: str = "") -> Iterator[Shard]:
    """Yield the shards of a plain file, in order; an empty file has none."""
    start = lines = 0
    with open(path, "rb") as raw:
        while piece := raw.read(SHARD_BYTES):
            count, end = piece.count(b"\n"), start + len(piece)
            while piece and not piece.endswith(b"\n"):
                piece = raw.readline(_PIECE)
                count, end = count + piece.endswith(b"\n"), end + len(piece)
            last = not raw.peek(1)
            first, lines = lines, lines + count
            yield Shard(file, path, start, end, first, failure if last else "", lines + 1)
            start = end
        if not start and failure:
            yield Shard(file, path, 0, 0, 0, failure, 1)


def lines_from(path: str, start: int, end: int, lines_before: int) -> Iterator[RawLine]:
    """Yield the lines that begin in [start, end) of a plain file and are not blank."""
    with open(path, "rb") as raw:
        raw.seek(start)
        if end - start > 2 * MAX_LINE_BYTES:  # a line that is too long is not held in memory
            offset = start
            for number, line, failure in read_lines(raw, MAX_LINE_BYTES):
                if offset >= end:
                    return
                if failure or (line := line.rstrip()):
                    yield RawLine(lines_before + number, offset, line, True, failure)
                offset = raw.tell()
            return
        data = raw.read(end - start)
    offset, number = start, lines_before
    texts = data.split(b"\n")
    del data
    for i, text in enumerate(texts, 1):
        number += 1
        if stripped := text.rstrip():
            long = len(text) > MAX_LINE_BYTES - (i < len(texts))
            failure = f"line longer than {MAX_LINE_BYTES:,} bytes" if long else ""
            yield RawLine(number, offset, b"" if long else stripped, i < len(texts), failure)
        offset += len(text) + 1


def plain_copy(file: str, folder: str) -> tuple[str, str]:
    """Decompress a file into the folder, up to the last whole line where it is damaged.

    Returns the path of the plain bytes, which is the file itself where it is not compressed, and why it
    cannot be read to its end.
    """
    with open(file, "rb") as raw:
        if not raw.read(4).startswith((GZIP, ZSTD)):
            return file, ""
    path, failure = Path(folder) / f"{len(list(Path(folder).iterdir()))}.jsonl", ""
    with open_bytes(file) as packed, path.open("wb") as plain:
        for _, line, why in read_lines(packed, MAX_LINE_BYTES):
            failure = why if why.startswith(CUT) else ""
            plain.write(line if not why or failure else line + b"\n")
    return str(path), failure
