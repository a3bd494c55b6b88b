"""The lines of a file as bytes, whatever is in them: a blank one is passed over, a huge one is not held in
memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import NamedTuple

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.files.find import open_bytes

MAX_LINE_BYTES = 256 * 2**20
"""A longer line is malformed: it is passed over."""

CUT = "the file cannot be read on from here"
"""How the reason begins why a file is not read to its end."""

_PIECE = 2**20  # bytes between two calls of `progress`
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """`number` from 1; `ended`: it has its newline, which only a file's last line may lack."""

    number: int
    text: bytes
    ended: bool


def iter_lines(path: str, report: ReadReport, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Each line that is not blank, without what ends it or a byte-order mark at the start of the file."""
    unseen = 0
    with open_bytes(path) as file:
        for number, line, failure in read_lines(file, max_bytes):
            unseen += len(line)
            if report.progress is not None and unseen >= _PIECE:
                report.progress(unseen)
                unseen = 0
            if number == 1 and line.startswith(_BOM):
                report.note("byte-order mark removed")
                line = line[len(_BOM) :]
            if failure:
                report.num_lines += 1
                (report.cut_off if failure.startswith(CUT) else report.malformed)(path, number, failure)
            elif text := line.rstrip():
                report.num_lines += 1
                yield Line(number, text, line.endswith(b"\n"))
    if report.progress is not None:
        report.progress(unseen)


def read_lines(file: BufferedReader, max_bytes: int) -> Iterator[tuple[int, bytes, str]]:
    """Number from 1, bytes, and why the line cannot be used if so, of every line."""
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(max_bytes + 1)
            rest = line if len(line) > max_bytes else b"\n"
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(2**20)
        except (OSError, EOFError, zlib.error) as error:
            yield number, b"", f"{CUT}: {str(error)[:80]}"
            return
        if not line:
            return
        yield number, line, f"line longer than {max_bytes:,} bytes" if len(line) > max_bytes else ""
