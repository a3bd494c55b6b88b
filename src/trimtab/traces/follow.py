"""A log that is still being written: only what is new is read, and an episode is counted when it has
ended. Of a coding agent's session nothing says when that is: it is judged as far as it has come."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from trimtab.errors import TraceError
from trimtab.traces.core.coerce import as_label
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.deduplicate import Identities
from trimtab.traces.files.find import STDIN
from trimtab.traces.files.lines import MAX_LINE_BYTES
from trimtab.traces.files.tail import Growing
from trimtab.traces.readers.ptt_steps.reader import is_step
from trimtab.traces.registry import FORMATS, find_format
from trimtab.traces.table.build import TableBuilder
from trimtab.traces.table.required_files import RequiredFiles
from trimtab.traces.table.types import TraceTable

FOLLOWED = ("trimtab", "steps", "messages", "verifiers", "verl", "prime-rl", "tau", "trl")
"""Formats whose lines are episodes, or steps that say when one has ended."""

SESSIONS = ("claude-code", "codex", "codex-exec")
"""Formats of which a file is a session or a few. Their lines are kept, and read again when more have come."""

_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\{")
_READABLE = ", ".join(FOLLOWED + SESSIONS)
_TOLD_BY = 50  # lines, of which one must be of a format we know
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1")


class Follower:
    """`poll` as often as you like; `table` is of the episodes that have ended. A line of an episode that had
    ended begins another of its id, and a file that was cut short or replaced is read from its start; what
    comes again is known and dropped. One that is gone is waited for (`growing`). TraceError for a file that
    is not plain JSON lines of a format of `FOLLOWED`."""

    def __init__(
        self,
        path: str | Path,
        report: ReadReport,
        format: str | None = None,
        mapping: Mapping[str, str] | None = None,
        required: RequiredFiles | None = None,
        max_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.path, self.format, self.mapping = str(path), format, dict(mapping or {})
        self._lines_report, self._session_report = report, ReadReport()
        if self.path == STDIN or not Path(self.path).is_file():
            raise TraceError(f"--follow needs one file that is there already, and {self.path} is none")
        if format is not None and format not in FOLLOWED + SESSIONS:
            raise TraceError(f"--follow cannot read the format {format!r}; it can {_READABLE}")
        if self.mapping:
            raise TraceError("--follow reads no mapped logs; leave --map out")
        self.builder, self.identities, self.max_bytes = TableBuilder(required), Identities(), max_bytes
        self.open: dict[str, list[Record]] = {}
        self._required, self._session, self._num_new = required, list[Record](), 0
        self._waiting: list[Record] = []
        self._file = Growing(self.path, report)
        self._rest, self._line, self._passing = b"", 0, False

    @property
    def report(self) -> ReadReport:
        """What was read so far, and what was left out."""
        if not self._session:
            return self._lines_report
        report = ReadReport()
        report.merge(self._lines_report)
        report.merge(self._session_report)
        return report

    @property
    def is_session(self) -> bool:
        """Is the file of sessions, which are judged before they end?"""
        return self.format in SESSIONS

    def poll(self) -> int:
        """Read what is new; how many episodes ended in it, of sessions how many lines came."""
        before, self._num_new = self._lines_report.num_episodes, 0
        for record in self._records():
            self._take(record)
        if self.is_session:
            self._read_sessions()
            return self._num_new
        return self._lines_report.num_episodes - before

    def table(self) -> TraceTable:
        """The table of all episodes that have ended."""
        return self.builder.table()

    def _records(self) -> Iterator[Record]:
        for number, line in self._lines():
            try:
                yield Record(self.path, number, parse_json(line))
            except BadJson as error:
                self._lines_report.malformed(self.path, number, str(error))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines that are not blank; the last one waits for its newline, or for the next file."""
        for fresh, piece in self._file.pieces():
            if fresh:
                if self._rest or self._passing:
                    yield from self._split(b"\n")
                self._line = 0
                self._session.clear()
                if piece.startswith(_PACKED):
                    raise TraceError(
                        f"--follow reads plain JSON lines, and {self.path} is compressed or Parquet"
                    )
                if _ARRAY.match(piece):
                    raise TraceError(
                        f"--follow reads JSON lines, and {self.path} is one JSON array; diagnose it without "
                        f"--follow when it is complete"
                    )
            yield from self._split(piece)

    def _split(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            self._line += 1
            if self._line == 1 and line.startswith(b"\xef\xbb\xbf"):
                self._lines_report.note("byte-order mark removed")
                line = line[3:]
            if self._passing or len(line) > self.max_bytes:
                self._passing = False
                self._lines_report.num_lines += 1
                self._lines_report.malformed(
                    self.path, self._line, f"line longer than {self.max_bytes:,} bytes"
                )
            elif text := line.strip():
                self._lines_report.num_lines += 1
                yield self._line, text
        if len(self._rest) > self.max_bytes:
            self._rest, self._passing = b"", True

    def _take(self, record: Record) -> None:
        if self.format is None:
            self._waiting.append(record)
            self.format = find_format(one.value for one in self._waiting)
            if self.format is None and len(self._waiting) < _TOLD_BY:
                return
            if self.format not in FOLLOWED + SESSIONS:
                raise TraceError(
                    f"--follow cannot read {self.path}: {self.format or 'no format we know'}; it can "
                    f"{_READABLE}"
                )
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                self._take(one)
            return
        self._lines_report.formats[self.path] = self.format
        if self.is_session:
            self._session.append(record)
            self._num_new += 1
            return
        if self.format != "steps":
            self._read([record])
            return
        name = as_label(record.value.get("episode_id")) if isinstance(record.value, dict) else None
        if name is None or not is_step(record.value):
            self._read([record])  # counts and locates what is wrong with it
            return
        self.open.setdefault(name, []).append(record)
        if record.value["type"] == "episode_end":
            self._read(self.open.pop(name))

    def _read(self, records: list[Record]) -> None:
        self._build(records, self._lines_report)

    def _read_sessions(self) -> None:
        """Build the table anew of all lines: one may change what those before it mean."""
        if not self._num_new:
            return
        old = self._lines_report
        self._session_report = ReadReport(strict=old.strict, error_patterns=old.error_patterns)
        self.builder, self.identities = TableBuilder(self._required), Identities()
        self._build(self._session, self._session_report)

    def _build(self, records: list[Record], report: ReadReport) -> None:
        assert self.format is not None
        for episode in FORMATS[self.format].read(self.mapping)(itertools.chain(records), report):
            if self.identities.admit(episode, report):
                report.num_episodes += 1
                report.mark_errors(episode.calls)
                self.builder.add(episode)
