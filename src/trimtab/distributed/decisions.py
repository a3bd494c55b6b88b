"""Decisions of the leading rank: written once, with a number and the step to apply them at, read by all."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trimtab.runs.row_lines import decode_line, encode_row
from trimtab.runs.schema import file_name

_NAME = re.compile(r"^decisions\.s(\d+)\.jsonl$")


@dataclass(frozen=True)
class Decision:
    """One decision. Every rank applies it at its own step `apply_at`, and at once where it reads it later."""

    number: int  # from 0, without a gap within a session of the leading rank
    step: int  # that the readings it rests on were merged at
    apply_at: int
    text: str  # what is done, as the guard packs it

    def row(self) -> dict[str, Any]:
        """Return the decision in JSON's types."""
        return {"number": self.number, "step": self.step, "apply_at": self.apply_at, "text": self.text}

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Decision:
        """Inverse of `row`. KeyError, TypeError or ValueError for another row."""
        return cls(int(row["number"]), int(row["step"]), int(row["apply_at"]), str(row["text"]))


class DecisionChannel(Protocol):
    """Brings decisions from the leading rank to all others. No method waits for a rank."""

    def write(self, decision: Decision) -> None:
        """Publish a decision, on the leading rank."""

    def poll(self) -> list[Decision]:
        """Return the decisions that arrived since the last call, in their order, on the other ranks."""

    def close(self) -> None:
        """Release what the channel holds."""


class FolderDecisions:
    """Decisions in `decisions.s<session>.jsonl` of the run folder, one file a session of the leading rank.

    A rank that opens a run again does not know whether the file is of this life of the job. It waits with
    what is there until the leading rank writes on, and drops it when the leading rank starts over.

    Example:
        channel = FolderDecisions("runs/exp1", leader=0, session=0, leads=True)
        channel.write(Decision(0, 17, 19, text))
    """

    def __init__(self, folder: str | os.PathLike[str], leader: int, session: int, *, leads: bool) -> None:
        self.folder, self.leader = Path(folder), leader
        self.num_damaged = 0
        self._file = -1
        self._session, self._offset = -1, 0
        self._unsure: list[Decision] = []  # of a life that may be over
        self._size_then = 0  # of the leading rank's steps when this rank opened
        if leads:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = os.open(self._path(session), flags, 0o644)
        elif session > 0:
            self._session = self._latest()
            self._unsure = self._read()
            self._size_then = self._size()

    def write(self, decision: Decision) -> None:
        """Append a decision; OSError where the disk takes no more."""
        os.write(self._file, encode_row(decision.row(), decision.number, 0))

    def poll(self) -> list[Decision]:
        """Return what was appended since the last call."""
        latest = self._latest()
        if latest != self._session:
            self._session, self._offset, self._unsure = latest, 0, []
        if self._session < 0:
            return []
        new = self._read()
        if self._unsure and (new or self._size() > self._size_then):
            new, self._unsure = [*self._unsure, *new], []
        return new

    def close(self) -> None:
        """Close the file of the leading rank."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _path(self, session: int) -> Path:
        return self.folder / f"decisions.s{session}.jsonl"

    def _latest(self) -> int:
        """Return the newest session of the leading rank that has a file; a listing only where the next one is
        not there."""
        if self._session >= 0 and not self._path(self._session + 1).exists():
            return self._session
        try:
            names = os.listdir(self.folder)
        except OSError:
            return self._session
        return max((int(m[1]) for m in map(_NAME.match, names) if m), default=-1)

    def _read(self) -> list[Decision]:
        if self._session < 0:
            return []
        try:
            with self._path(self._session).open("rb") as handle:
                handle.seek(self._offset)
                data = handle.read()
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        decisions = []
        for line in data[:end].splitlines():
            row, vouched = decode_line(line)
            try:
                if row is None or not vouched:
                    raise ValueError("damaged")
                decisions.append(Decision.of_row(row))
            except (KeyError, TypeError, ValueError):
                self.num_damaged += 1
        return decisions

    def _size(self) -> int:
        path = self.folder / file_name("steps", self.leader, self._session)
        return path.stat().st_size if path.exists() else 0
