"""A log's bytes in pieces of whole lines: work that threads or machines share.

A plain file is cut by offsets; what is compressed is decompressed here, a piece at a time.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.find import open_bytes
from trimtab.traces.files.lines import CUT, MAX_LINE_BYTES, Line, read_lines

SHARD_BYTES = 32 * 2**20
"""Bytes of a piece, and what it takes to its line's end; about twice that is held while it is worked on."""

_PIECE = 2**20
_BOM = b"\xef\xbb\xbf"
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class Shard(NamedTuple):
    """Whole lines of a file: bytes `start` to `end` of a plain one; else `data`, and `start` are the lines before it.
    `failure`: why the file cannot be read on after it."""

    path: str
    number: int
    start: int
    end: int
    data: bytes | None = None
    failure: str = ""

    @property
    def num_bytes(self) -> int:
        """Of text, decompressed."""
        return self.end - self.start if self.data is None else len(self.data)


def shards_of(path: str, report: ReadReport) -> Iterator[Shard]:
    """The pieces of a file, in order; an empty file has none."""
    with open(path, "rb") as file:
        head = file.read(4)
        if not head.startswith(_PACKED):
            yield from _plain(file, path, head, report)
            return
    yield from _packed(path, report)


def _plain(file: io.BufferedReader, path: str, head: bytes, report: ReadReport) -> Iterator[Shard]:
    size, start, number = Path(path).stat().st_size, 0, 0
    if head.startswith(_BOM):
        report.note("byte-order mark removed")
        start = len(_BOM)
    while start < size:
        end = min(start + SHARD_BYTES, size)
        file.seek(end - 1)
        while (rest := file.readline(_PIECE)) and not rest.endswith(b"\n"):
            pass
        end = file.tell()
        yield Shard(path, number, start, end)
        start, number = end, number + 1


def _packed(path: str, report: ReadReport) -> Iterator[Shard]:
    number, lines, held, failure = 0, 0, bytearray(), ""
    with open_bytes(path) as file:
        while True:
            try:
                piece = file.read1(io.DEFAULT_BUFFER_SIZE)
            except (OSError, EOFError, zlib.error) as error:
                piece, failure = b"", f"{CUT}: {str(error)[:80]}"
            if not held and not number and piece.startswith(_BOM):
                report.note("byte-order mark removed")
                piece = piece[len(_BOM) :]
            held += piece
            cut = held.rfind(b"\n") + 1 if piece or failure else len(held)
            if (len(held) >= SHARD_BYTES and cut) or (not piece and (held or failure)):
                yield Shard(path, number, lines, 0, bytes(held[:cut]), failure)
                lines, number = lines + held.count(b"\n", 0, cut), number + 1
                del held[:cut]
            if not piece:
                return


def lines_of(shard: Shard) -> Iterator[tuple[Line, str]]:
    """Its lines that are not blank, numbered from 1 in the shard, and why one cannot be used, if so."""
    with _opened(shard) as file:
        for number, line, failure in read_lines(file, MAX_LINE_BYTES):
            if failure:
                yield Line(number, b"", True), failure
            elif text := line.rstrip():
                yield Line(number, text, line.endswith(b"\n")), ""


class LinesBefore:
    """How many lines come before a shard? Asked in the shards' order, the bytes between are read once more."""

    def __init__(self) -> None:
        self._path, self._at, self._lines = "", 0, 0

    def __call__(self, shard: Shard) -> int:
        """The number of newlines before it."""
        if shard.data is not None:
            return shard.start
        if shard.path != self._path:
            self._path, self._at, self._lines = shard.path, 0, 0
        with open(shard.path, "rb") as file:
            file.seek(self._at)
            while self._at < shard.start and (piece := file.read(min(_PIECE, shard.start - self._at))):
                self._at, self._lines = self._at + len(piece), self._lines + piece.count(b"\n")
        return self._lines


class _Range(io.RawIOBase):
    """Some bytes of a file."""

    def __init__(self, shard: Shard) -> None:
        self._file, self._left = open(shard.path, "rb", buffering=0), shard.end - shard.start  # noqa: SIM115
        self._file.seek(shard.start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view) or 0
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(shard: Shard) -> io.BufferedReader:
    raw: Any = _Range(shard) if shard.data is None else io.BytesIO(shard.data)
    return io.BufferedReader(raw)
