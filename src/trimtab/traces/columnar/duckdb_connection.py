"""Where a thread has DuckDB read shards: a connection of its own, a file in memory, and statements that are parsed once."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from trimtab.traces.columnar.pipe import MemoryFile, through_pipe
from trimtab.traces.columnar.shards import Shard
from trimtab.typing import Array

if TYPE_CHECKING:
    import duckdb


_MEMORY_MB = 200  # DuckDB's own limit, and four times the longest line
_MAX_STATEMENTS = 8
_PATH = "read_json(?"
_local = threading.local()


class Desk:
    """Belongs to one thread. The rows' statement is parsed once where the path stays the same, that of the file in memory; it is bound
    and optimised for each shard (DuckDB caches no plan that reads files), which takes as long as reading 6,000 rows."""

    def __init__(self) -> None:
        import duckdb  # a tenth of a second, which other logs need not wait for

        self.con: duckdb.DuckDBPyConnection = duckdb.connect(":memory:")
        self.con.execute("set threads = 1; set timezone = 'UTC'")
        self._memory = MemoryFile() if hasattr(os, "memfd_create") else None
        self.scripts = False  # has it met another script than Latin?
        self._names: dict[str, str] = {}
        self._max_bytes = 0
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def path(self, shard: Shard) -> Iterator[str]:
        """A path at which the shard's bytes are read, once. TraceError where the file cannot be read."""
        if self._memory is None:
            with through_pipe(shard) as path:
                yield path
        else:
            self._memory.hold(shard)
            yield self._memory.path

    def columns(self, shard: Shard, query: str, max_bytes: int) -> dict[str, Array]:
        """What the query, whose `?` is the shard's path, finds in it; `has_...`: where a text or a number that may be null is none.
        duckdb.Error as DuckDB raises it."""
        if max_bytes != self._max_bytes:  # DuckDB gives all free memory back when it is set
            self.con.execute(f"set memory_limit = '{_MEMORY_MB + 4 * max_bytes // 2**20}MB'")
            self._max_bytes = max_bytes
        with self.path(shard) as path:
            if self._memory is None:
                found = self.con.execute(query, [path])
            else:
                found = self.con.execute(f"execute {self._prepared(query, path)}")
            return _plain(found.fetchnumpy())

    def _prepared(self, query: str, path: str) -> str:
        name = self._names.get(query)
        if name is None:
            if len(self._names) >= _MAX_STATEMENTS:
                self.con.execute(f"deallocate {self._names.pop(next(iter(self._names)))}")
            name = f"statement{next(self._numbers)}"
            self.con.execute(f"prepare {name} as " + query.replace(_PATH, f"read_json('{path}'"))
            self._names[query] = name
        return name


def desk() -> Desk:
    """The calling thread's own."""
    if not hasattr(_local, "desk"):
        _local.desk = Desk()
    found: Desk = _local.desk
    return found


def _plain(found: dict[str, Array]) -> dict[str, Array]:
    """Columns without masks: a null text is None, a null number nan. To look for None in a column takes ten times as long as in its mask."""
    columns: dict[str, Array] = {}
    for name, column in found.items():
        data = columns[name] = np.ma.getdata(column)
        if isinstance(column, np.ma.MaskedArray):
            null = np.ma.getmaskarray(column)
            if data.dtype.kind in "Of":
                data[null] = None if data.dtype == object else np.nan
            columns[f"has_{name}"] = ~null
        elif data.dtype == object:
            columns[f"has_{name}"] = np.ones(data.size, bool)
    return columns
