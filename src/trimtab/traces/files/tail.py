"""The bytes of a file that somebody writes to, rotates, cuts short or deletes while we read.

The file stays open, so that what was written just before a rotation is still read. A new file of its name is
read when it holds something: until then its writer may still hold the old one. While there is none we wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

from trimtab.errors import TraceError
from trimtab.traces.core.read_report import ReadReport

REPLACED = "file cut short or replaced, read from its start"
GONE = "file gone, waited for another of its name"

_CHUNK = 2**24
_KNOWN = 1024  # bytes at the start and before the place of reading, by which a file is known again


class Growing:
    """`pieces` of what is new, as often as you like."""

    def __init__(self, path: str, report: ReadReport) -> None:
        self._path, self._report = path, report
        self._file: IO[bytes] | None = None
        self._at, self._head, self._tail, self._missing = 0, b"", b"", False

    def pieces(self) -> Iterator[tuple[bool, bytes]]:
        """Yield the bytes to where the file now ends, and whether they begin a file. One that was cut short,
        and one that takes its place, begin anew; both are counted, and so is each time that there is none.
        TraceError for a file that cannot be read."""
        try:
            yield from self._read()
            while (other := self._other()) is not None:
                yield from self._read()  # written since
                if self._file is not None:
                    self._report.note(REPLACED)
                self.close()
                self._file, self._at, self._head, self._tail = other, 0, b"", b""
                yield from self._read()
        except OSError as error:
            raise TraceError(f"{self._path} cannot be read on: {error.strerror or error}") from error

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    __del__ = close

    def _read(self) -> Iterator[tuple[bool, bytes]]:
        if self._file is None:
            return
        if self._is_cut(self._file.fileno()):
            self._report.note(REPLACED)
            self._file.seek(0)
            self._at, self._head, self._tail = 0, b"", b""
        while chunk := self._file.read(_CHUNK):
            fresh, self._at = self._at == 0, self._at + len(chunk)
            self._head = (self._head + chunk[:_KNOWN])[:_KNOWN]
            self._tail = (self._tail + chunk[-_KNOWN:])[-_KNOWN:]
            yield fresh, chunk

    def _is_cut(self, file: int) -> bool:
        """Is what we have read no longer there? It may have been written over by more than that."""
        before = self._at - len(self._tail)
        return (
            os.fstat(file).st_size < self._at
            or os.pread(file, len(self._head), 0) != self._head
            or os.pread(file, len(self._tail), before) != self._tail
        )

    def _other(self) -> IO[bytes] | None:
        """A file of our name that is not the one we hold, and holds something where we hold one."""
        try:
            file = open(self._path, "rb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            if not self._missing:
                self._report.note(GONE)
            self._missing = True
            return None
        self._missing, now = False, os.fstat(file.fileno())
        if self._file is None or (now.st_size and not os.path.samestat(now, os.fstat(self._file.fileno()))):
            return file
        file.close()
        return None
