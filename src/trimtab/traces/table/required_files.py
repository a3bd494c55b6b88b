"""Files that a user requires the agent to open: how often calls named each, and in which episodes."""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trimtab.traces.core.episode import Episode
from trimtab.traces.table.types import ToolRow
from trimtab.typing import Array


class FileUses(NamedTuple):
    """Rows of files, and pairs (episode, file) of which the episode's calls named the file."""

    rows: dict[str, ToolRow]
    episode: Array
    file: Array


class RequiredFiles:
    """Which files to look for, and the tool -> argument that names one; both are
    `measure.state.requirements`."""

    def __init__(self, names: Iterable[str] = (), arguments: Mapping[str, str] | None = None) -> None:
        self.rows = {posixpath.normpath(name): ToolRow() for name in names}
        self.arguments = dict(arguments or {})
        self._codes = {name: i for i, name in enumerate(self.rows)}
        self._episode, self._file = array("q"), array("q")

    def empty(self) -> RequiredFiles:
        """Return the same question with nothing counted."""
        return RequiredFiles(self.rows, self.arguments)

    def add(self, episode: Episode, number: int) -> None:
        """Count the calls of an episode that name one of the files."""
        here: set[str] = set()
        for call in episode.calls if self.rows else ():
            argument = self.arguments.get(call.name)
            value = call.arguments.get(argument) if argument and isinstance(call.arguments, dict) else None
            name = posixpath.normpath(value) if isinstance(value, str) and value else None
            if name not in self.rows:
                continue
            row = self.rows[name]
            row.first = number if row.first < 0 else row.first
            row.calls, row.last = row.calls + 1, number
            row.failed += bool(call.error)
            if name not in here:
                row.episodes += 1
                self._episode.append(number)
                self._file.append(self._codes[name])
            here.add(name)

    def partial(self) -> FileUses:
        """Return what has been counted so far."""
        rows = {name: replace(row) for name, row in self.rows.items()}
        return FileUses(rows, np.array(self._episode, np.int64), np.array(self._file, np.int64))
