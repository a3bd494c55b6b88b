"""Columns of the episodes counted so far lie in a file until the table is made: memory does not grow with them while shards are read."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import TraceError
from trimtab.typing import Array


class Stored(NamedTuple):
    """Where an array lies."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


Kept = Array | Stored


class Shelf:
    """One file without a name, in the folder, which the system takes back when it is closed."""

    def __init__(self, folder: Path) -> None:
        path = folder / "shelf"
        self._folder, self._file, self._end = folder, path.open("w+b", buffering=0), 0
        path.unlink()

    def put(self, array: Array) -> Stored:
        """Put numbers away. TraceError where the disk is full."""
        view, start = memoryview(array.tobytes()), self._end
        while view:
            try:
                written = os.pwrite(self._file.fileno(), view, self._end)
            except OSError as error:
                raise TraceError(
                    f"{self._folder.parent}: {error.strerror or error}; what was counted is kept there, set TMPDIR to a folder with room"
                ) from error
            self._end, view = self._end + written, view[written:]
        return Stored(start, array.dtype, array.shape)

    def get(self, stored: Stored) -> Array:
        """The numbers, not to be written to."""
        size = math.prod(stored.shape) * stored.dtype.itemsize
        data = os.pread(self._file.fileno(), size, stored.start)
        return np.frombuffer(data, stored.dtype).reshape(stored.shape)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def stored(part: Kept, shelf: Shelf | None) -> Kept:
    """The part, on the shelf if there is one."""
    return part if shelf is None or isinstance(part, Stored) else shelf.put(part)


def loaded(part: Kept, shelf: Shelf | None) -> Array:
    """Its numbers."""
    if not isinstance(part, Stored):
        return part
    assert shelf is not None
    return shelf.get(part)
