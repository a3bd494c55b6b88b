"""The run store's reader: any folder, finished, killed or still being written.

A torn last line and a malformed one are counted, never fatal; `integrity` says what they cost. A resume
supersedes: when a later session of a rank starts at step s, its earlier sessions count up to s - 1.
"""

from __future__ import annotations

import gzip
import os
import re
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.errors import RunError
from trimtab.runs.process_record import read_process_records
from trimtab.runs.row_checks import row_is_valid
from trimtab.runs.row_lines import decode_line
from trimtab.runs.run_files import read_header
from trimtab.runs.schema import COMPRESSED, KINDS, file_name, parse_name
from trimtab.safe_files import read_capped, require_regular

Row = dict[str, Any]

_OPENED = re.compile(r"(?:\.lock|\.ok|FAILED|process)\.r(\d+)(?:\.|$)")
_FAILED = re.compile(r"FAILED\.r(\d+)\.s(\d+)")


@dataclass
class RowFile:
    """What was read of one file."""

    offset: int = 0
    rows: list[Row] = field(default_factory=list)
    torn: bool = False  # the last line is incomplete
    malformed: int = 0
    compressed: bool = False
    numbered: bool = False  # rows carry numbers and checksums: written after 0.1
    next_number: int = 0  # of the row that comes next
    num_unnumbered: int = 0  # damaged lines behind the row before that one
    num_repeated: int = 0  # lines whose numbers came before
    num_lost: int = 0  # rows whose numbers are missing
    damaged_at: list[int] = field(default_factory=list)  # `next_number` at each damaged line and missing row
    num_steps: int = 0  # the most steps that a row says were begun before it
    num_settled: int = 0  # of steps: rows read before the other files, which hold all that these count

    def take(self, line: bytes, kind: str, complete: bool) -> None:
        """Add the row of a line, or count the line as repeated or as malformed."""
        row, vouched = decode_line(line)
        if row is not None and vouched and row["q"] < self.next_number:
            self.num_repeated += 1
            return
        if row is not None and vouched:
            self.numbered = True
            self._number(row)
        if row is None or self.numbered > vouched or not row_is_valid(row, kind, complete, vouched):
            self.malformed += 1
            self.num_unnumbered += not vouched
            self.damaged_at.append(self.next_number - vouched)
        else:
            self.rows.append(row)

    @property
    def num_known(self) -> int:
        """Rows that were read or are damaged, up to the last one; the others are lost."""
        return self.next_number + self.num_unnumbered

    def _number(self, row: Row) -> None:
        if row["q"] > self.num_known:
            self.num_lost += row["q"] - self.num_known
            self.damaged_at.append(self.next_number)
        self.next_number, self.num_unnumbered = row["q"] + 1, 0
        self.num_steps = max(self.num_steps, row["s"])


class RunReader:
    """Reads a run folder and follows it: `poll` picks up what was appended since the last call.

    `complete`: rows without everything `schema.REQUIRED` asks of their kind count as malformed, for readers
    that rely on it. Raises RunError when the folder is not a run or comes from a newer format.
    """

    def __init__(self, folder: str | os.PathLike[str], *, complete: bool = False) -> None:
        self.header = read_header(folder)
        self.folder, self.complete = Path(folder), complete
        self.files: dict[tuple[str, int, int], RowFile] = {}
        self.failed: frozenset[tuple[int, int]] = frozenset()  # (rank, session) whose writes fail
        self.opened: frozenset[int] = frozenset()  # ranks that have opened the folder
        self.processes: dict[tuple[int, int], Row] = {}  # (rank, session) -> `read_process_record`
        self.poll()

    def poll(self) -> int:
        """Read what is new; the number of new rows."""
        num_before = sum(len(file.rows) for file in self.files.values())
        names = self._names()
        self.failed = frozenset(
            (int(match[1]), int(match[2])) for match in map(_FAILED.fullmatch, names) if match
        )
        self.opened = frozenset(int(match[1]) for match in map(_OPENED.match, names) if match)
        # A process that is gone by now has written its end, so the end is read later.
        self.processes = read_process_records(self.folder, names)
        # A row of steps counts the rows written before it, and those rows count the steps before them. So in
        # a run that is being written, the first reading of steps tells which rows there are, the last one
        # which steps.
        self._read_files(names, steps=True)
        for file in self.files.values():
            file.num_settled = len(file.rows)
        self._read_files(self._names(), steps=False)
        self._read_files(names, steps=True)
        return sum(len(file.rows) for file in self.files.values()) - num_before

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except OSError as error:
            raise RunError(f"{self.folder} cannot be read: {error}") from error

    def _read_files(self, names: list[str], *, steps: bool) -> None:
        """Read what is new in the files of steps, or in all others."""
        known = set(names)
        for name in names:
            key = parse_name(name)
            if key is None or (name.endswith(COMPRESSED) and name.removesuffix(COMPRESSED) in known):
                continue
            if (key[0] == "steps") == steps:
                self._read(self.folder / name, self.files.setdefault(key, RowFile()), key[0])

    def _read(self, path: Path, file: RowFile, kind: str) -> None:
        if path.suffix == COMPRESSED and file.compressed:
            return
        try:
            require_regular(path, RunError)
            if path.suffix == COMPRESSED:
                with gzip.open(path) as packed:
                    data = read_capped(packed, path, RunError, file.offset)
            else:
                with path.open("rb") as handle:
                    handle.seek(file.offset)
                    data = handle.read()
        except (OSError, EOFError, zlib.error) as error:
            raise RunError(f"{path} cannot be read: {error}") from error
        file.compressed = path.suffix == COMPRESSED
        end = data.rfind(b"\n") + 1
        file.torn = end < len(data)
        file.offset += end
        for line in data[:end].split(b"\n"):
            if line.strip():
                file.take(line, kind, self.complete)

    @property
    def ranks(self) -> list[int]:
        """Ranks that have written."""
        return sorted({rank for _, rank, _ in self.files})

    @property
    def num_sessions(self) -> int:
        """Lives of the run: the most sessions any rank has."""
        return 1 + max((session for _, _, session in self.files), default=-1)

    @property
    def num_torn(self) -> int:
        """Files whose last line is incomplete: a write was cut, or is under way."""
        return sum(file.torn for file in self.files.values())

    @property
    def num_malformed(self) -> int:
        """Complete lines that are not JSON objects with what their kind requires; skipped."""
        return sum(file.malformed for file in self.files.values())

    @property
    def num_repeated(self) -> int:
        """Lines that stand in their file a second time; skipped."""
        return sum(file.num_repeated for file in self.files.values())

    def rows(self, kind: str, rank: int | None = None) -> list[Row]:
        """Rows of a kind in the order of sessions, without what a resume superseded; of all ranks, or of
        one."""
        return self._rows(kind, rank, superseded=False)

    def superseded(self, kind: str) -> list[Row]:
        """Rows of a kind that a resume superseded, of all ranks."""
        return self._rows(kind, None, superseded=True)

    def _rows(self, kind: str, rank: int | None, superseded: bool) -> list[Row]:
        if kind not in KINDS:
            raise RunError(f"unknown kind of row {kind!r}; one of {', '.join(KINDS)}")
        rows: list[Row] = []
        for (name, owner, session), file in sorted(self.files.items()):
            if name == kind and (rank is None or owner == rank):
                limit = self._superseded_from(owner, session)
                rows += [
                    row
                    for row in file.rows
                    if (
                        limit is not None
                        and int(row["last"] if "last" in row else row.get("step", -1)) >= limit
                    )
                    == superseded
                ]
        return rows

    @property
    def num_superseded(self) -> int:
        """Flushed steps that a later session of the same rank started over; no view shows them."""
        shown = len(self.rows("steps"))
        return sum(len(file.rows) for (kind, _, _), file in self.files.items() if kind == "steps") - shown

    def last_step(self, rank: int) -> int | None:
        """The last step a rank has flushed in its latest session that flushed any."""
        rows = self.rows("steps", rank)
        return int(rows[-1]["step"]) if rows else None

    def session_of(self, rank: int) -> int:
        """The number of a rank's latest session; -1 where it has none."""
        return max((session for _, owner, session in self.files if owner == rank), default=-1)

    def file(self, kind: str, rank: int, session: int) -> RowFile:
        """What was read of one file; an empty one where there is none."""
        return self.files.get((kind, rank, session), RowFile())

    def has_file(self, kind: str, rank: int, session: int) -> bool:
        """Is there a file of this kind, even an empty one?"""
        return (kind, rank, session) in self.files

    def end(self, rank: int) -> Row | None:
        """How the latest session of a rank ended: its `end` row; None while it is written, and after a kill
        -9."""
        session = self.session_of(rank)
        ends, steps = self.file("end", rank, session).rows, self.file("steps", rank, session)
        return ends[-1] if ends and ends[-1].get("num_steps", -1) >= steps.next_number else None

    def age_s(self, rank: int) -> float:
        """Seconds since the latest session of a rank wrote to its file of steps, by this machine's clock; 0
        where unknown."""
        name = file_name("steps", rank, self.session_of(rank))
        for path in (self.folder / name, self.folder / (name + COMPRESSED)):
            with suppress(OSError):
                return time.time() - path.stat().st_mtime
        return 0.0

    def _superseded_from(self, rank: int, session: int) -> int | None:
        """First step of the later sessions of a rank, None when there is none."""
        starts: list[int] = [
            int(file.rows[0]["step"])
            for (kind, owner, later), file in self.files.items()
            if kind == "steps" and owner == rank and later > session and file.rows
        ]
        return min(starts) if starts else None
