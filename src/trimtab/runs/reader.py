"""The run store's reader: any folder, finished, killed or still being written.

A torn last line and a malformed one are counted, never fatal. A resume supersedes: when a later session of a
rank starts at step s, its earlier sessions count up to s - 1.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.errors import RunError
from trimtab.runs.run_writer import read_header
from trimtab.runs.schema import COMPRESSED, KINDS, REQUIRED, parse_name
from trimtab.safe_files import read_capped, require_regular

Row = dict[str, Any]


@dataclass
class _File:
    offset: int = 0
    rows: list[Row] = field(default_factory=list)
    torn: bool = False
    malformed: int = 0
    compressed: bool = False


class RunReader:
    """Reads a run folder and follows it: `poll` picks up what was appended since the last call.

    `complete`: rows without everything `schema.REQUIRED` asks of their kind count as malformed, for readers
    that rely on it. Raises RunError when the folder is not a run or comes from a newer format.
    """

    def __init__(self, folder: str | os.PathLike[str], *, complete: bool = False) -> None:
        self.folder, self.complete = Path(folder), complete
        self.header = read_header(folder)
        self._files: dict[tuple[str, int, int], _File] = {}
        self.poll()

    def poll(self) -> int:
        """Read what is new; the number of new rows."""
        new = 0
        try:
            names = sorted(os.listdir(self.folder))
        except OSError as error:
            raise RunError(f"{self.folder} cannot be read: {error}") from error
        for name in names:
            key = parse_name(name)
            if key is None or (name.endswith(COMPRESSED) and name.removesuffix(COMPRESSED) in names):
                continue
            new += self._read(
                self.folder / name, self._files.setdefault(key, _File()), self._required(key[0])
            )
        return new

    def _required(self, kind: str) -> Mapping[str, Any]:
        if self.complete:
            return REQUIRED[kind]
        return {"first": int, "last": int} if kind == "states" else {"step": int}

    def _read(self, path: Path, file: _File, required: Mapping[str, Any]) -> int:
        if path.suffix == COMPRESSED and file.compressed:
            return 0
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
        before = len(file.rows)
        for line in data[:end].splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict) and all(
                isinstance(row.get(key), kind) for key, kind in required.items()
            ):
                file.rows.append(row)
            else:
                file.malformed += 1
        return len(file.rows) - before

    @property
    def ranks(self) -> list[int]:
        """Ranks that have written."""
        return sorted({rank for _, rank, _ in self._files})

    @property
    def num_sessions(self) -> int:
        """Lives of the run: the most sessions any rank has."""
        return 1 + max((session for _, _, session in self._files), default=-1)

    @property
    def num_torn(self) -> int:
        """Files whose last line is incomplete: a write was cut, or is under way."""
        return sum(file.torn for file in self._files.values())

    @property
    def num_malformed(self) -> int:
        """Complete lines that are not JSON objects with what their kind requires; skipped."""
        return sum(file.malformed for file in self._files.values())

    def rows(self, kind: str, rank: int | None = None) -> list[Row]:
        """Rows of a kind in the order of sessions, without what a resume superseded; of all ranks, or of
        one."""
        if kind not in KINDS:
            raise RunError(f"unknown kind of row {kind!r}; one of {', '.join(KINDS)}")
        rows_found: list[Row] = []
        for (name, owner, session), file in sorted(self._files.items()):
            if name == kind and (rank is None or owner == rank):
                limit = self._superseded_from(owner, session)
                rows_found += [
                    row
                    for row in file.rows
                    if limit is None or int(row["last"] if "last" in row else row.get("step", -1)) < limit
                ]
        return rows_found

    @property
    def num_superseded(self) -> int:
        """Flushed steps that a later session of the same rank started over; no view shows them."""
        shown = len(self.rows("steps"))
        return sum(len(file.rows) for (kind, _, _), file in self._files.items() if kind == "steps") - shown

    def last_step(self, rank: int) -> int | None:
        """The last step a rank has flushed in its latest session that flushed any."""
        rows = self.rows("steps", rank)
        return int(rows[-1]["step"]) if rows else None

    def session_of(self, rank: int) -> int:
        """The latest session of a rank; -1 where it has none."""
        return max((session for _, owner, session in self._files if owner == rank), default=-1)

    def end(self, rank: int) -> Row | None:
        """How the latest session of a rank ended: its `end` row; None while it is written, and after a kill
        -9."""
        session = self.session_of(rank)
        ends = self._files.get(("end", rank, session), _File()).rows
        steps = self._files.get(("steps", rank, session), _File()).rows
        return ends[-1] if ends and ends[-1].get("num_steps") == len(steps) else None

    def _superseded_from(self, rank: int, session: int) -> int | None:
        """First step of the later sessions of a rank, None when there is none."""
        starts: list[int] = [
            int(file.rows[0]["step"])
            for (kind, owner, later), file in self._files.items()
            if kind == "steps" and owner == rank and later > session and file.rows
        ]
        return min(starts) if starts else None
