"""FolderSource: the shards that the other ranks append to the shared run folder, read as they grow."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.distributed.shard import Block, Shard
from trimtab.runs.row_checks import row_is_valid
from trimtab.runs.row_lines import decode_line
from trimtab.runs.schema import file_name, parse_name

Row = dict[str, Any]
_OTHERS = ("series", "tools", "states")
_FRESH_S = 5.0  # a folder that changed so lately is listed again: clocks of file systems tick coarsely


@dataclass
class _Tail:
    """One growing file of rows: what was read, and what no step has taken yet."""

    path: Path
    kind: str
    offset: int = 0
    next_number: int = 0
    rows: list[Row] = field(default_factory=list)
    skipped: bool = False  # began at the end of what was there: earlier rows are not known
    num_damaged: int = 0

    def read(self) -> None:
        """Read the complete lines that were appended."""
        try:
            with self.path.open("rb") as handle:
                handle.seek(self.offset)
                data = handle.read()
        except OSError:  # not there yet, or for a moment unreachable
            return
        end = data.rfind(b"\n") + 1
        self.offset += end
        for line in data[:end].split(b"\n"):
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        row, vouched = decode_line(line)
        if row is None or not vouched or not row_is_valid(row, self.kind, True, vouched):
            self.num_damaged += 1
            return
        if row["q"] >= self.next_number or self.skipped:
            self.rows.append(row)
            self.next_number, self.skipped = row["q"] + 1, False

    def has(self, count: int) -> bool:
        """Are the first `count` rows of the file read?"""
        return self.skipped or self.next_number + self.num_damaged >= count

    def take_through(self, step: int) -> tuple[Row, ...]:
        """Return the rows up to `step` that no step has taken."""
        taken = tuple(row for row in self.rows if _step_of(row) <= step)
        self.rows = [row for row in self.rows if _step_of(row) > step]
        return taken


@dataclass
class _Session:
    """The files of one life of one rank."""

    rank: int
    session: int
    steps: _Tail
    others: dict[str, _Tail]
    waiting: list[Row] = field(default_factory=list)  # rows of steps whose other rows have not come yet
    resumed: bool = False  # began behind rows that are not read
    base: int | None = None  # number of the first row of steps that was read

    def shards(self) -> Iterator[Shard]:
        """Yield the steps that are whole, with their rows."""
        self.steps.read()
        self.waiting += self.steps.rows
        self.steps.rows = []
        if not self.waiting:
            return
        for tail in self.others.values():
            tail.read()
        while self.waiting:
            row = self.waiting[0]
            counts = row.get("n") or {}
            if not all(tail.has(int(counts.get(kind) or 0)) for kind, tail in self.others.items()):
                return  # a file system that shows one file before another
            self.waiting.pop(0)
            yield self._shard(row)

    def _shard(self, row: Row) -> Shard:
        step = int(row["step"])
        parts = {kind: tail.take_through(step) for kind, tail in self.others.items()}
        blocks = tuple(Block(int(r["first"]), int(r["last"]), str(r["states"])) for r in parts["states"])
        series = next((r for r in reversed(parts["series"]) if r["step"] == step), None)
        if self.base is None:  # what was there before a resume is not read, so it is not lost
            self.base = int(row["q"]) if self.resumed else 0
        return Shard(
            self.rank, self.session, int(row["q"]) - self.base, step, row, series, parts["tools"], blocks
        )


class FolderSource:
    """Tails the files of all ranks but `own` in a run folder, or of those in `only`. Nothing is read twice.

    A process that opens a run again (`resumed`) reads what is appended from then on: rows that were there
    before may be of a life that its rank will start over.

    Example:
        source = FolderSource("runs/exp1", own=0)
        for shard in source.poll(): merger.add(shard)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        own: int,
        *,
        resumed: bool = False,
        only: Collection[int] | None = None,
    ) -> None:
        self.folder, self.own, self.only = Path(folder), own, only
        self._sessions: dict[tuple[int, int], _Session] = {}
        self._over: set[tuple[int, int]] = set()  # sessions that a later one has followed
        self._listed_at = -1.0
        self._changed_at = -1
        self._failure = ""
        if resumed:
            self._find_sessions(at_end=True)

    def put(self, shard: Shard) -> None:
        """The run store has written it already."""

    def poll(self) -> Iterator[Shard]:
        """Yield the steps that were appended since the last call."""
        self._find_sessions()
        for key in sorted(self._sessions):
            if self.only is not None and key[0] not in self.only:
                continue
            yield from self._sessions[key].shards()
        for rank, session in list(self._sessions):  # an earlier life writes no more
            if (rank, session + 1) in self._sessions:
                del self._sessions[rank, session]
                self._over.add((rank, session))

    def seek(self, shard: Shard, position: Mapping[str, tuple[int, int]]) -> None:
        """Go on behind a shard that came by another way.

        Args:
            shard: the last one that came so, of its rank's session.
            position: kind of file -> rows and bytes that this session had written with the shard.
        """
        key = shard.rank, shard.session
        one = self._opened(*key, at_end=False)
        for kind, tail in (("steps", one.steps), *one.others.items()):
            tail.next_number, tail.offset = position.get(kind, (0, 0))
        one.base = one.steps.next_number - shard.number - 1
        self._sessions[key] = one

    def is_current(self) -> bool:
        """Whether the last poll could read the folder."""
        return not self._failure

    def failure(self) -> str:
        """Return why the folder cannot be read; empty while it can."""
        return self._failure

    def close(self) -> None:
        """Nothing is open between two calls."""

    @property
    def num_damaged(self) -> int:
        """Lines that could not be read."""
        tails = [t for one in self._sessions.values() for t in (one.steps, *one.others.values())]
        return sum(tail.num_damaged for tail in tails)

    def _find_sessions(self, *, at_end: bool = False) -> None:
        """List the folder, where it has changed."""
        try:
            changed = os.stat(self.folder).st_mtime_ns
            now = time.time()
            if changed == self._changed_at and now - changed / 1e9 > _FRESH_S and now - self._listed_at < 60:
                return
            names = os.listdir(self.folder)
        except OSError as error:
            self._failure = f"{self.folder} cannot be read: {error.strerror or error}"
            return
        self._failure, self._changed_at, self._listed_at = "", changed, now
        for name in names:
            key = parse_name(name)
            if key is None or key[0] != "steps" or key[1] == self.own or not name.endswith(".jsonl"):
                continue
            rank, session = key[1:]
            if self.only is not None and rank not in self.only:
                continue
            if (rank, session) not in self._sessions and (rank, session) not in self._over:
                self._sessions[rank, session] = self._opened(rank, session, at_end=at_end)

    def _opened(self, rank: int, session: int, *, at_end: bool) -> _Session:
        tails = {}
        for kind in ("steps", *_OTHERS):
            path = self.folder / file_name(kind, rank, session)
            size = path.stat().st_size if at_end and path.exists() else 0
            tails[kind] = _Tail(path, kind, size, skipped=size > 0)
        return _Session(
            rank, session, tails["steps"], {kind: tails[kind] for kind in _OTHERS}, resumed=at_end
        )


def _step_of(row: Row) -> int:
    return int(row["last"] if "last" in row else row["step"])
