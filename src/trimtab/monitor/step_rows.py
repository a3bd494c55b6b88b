"""Rows of the open step on their way to the disk; a disk that does not take them stops no measuring."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from trimtab.monitor.isolation import Isolation
from trimtab.runs import RunWriter

Row = dict[str, Any]


class StepRows:
    """Writes the rows of a step. What the disk does not take is raised when the step ends, once, so that its
    alarms are known by then."""

    def __init__(self, writer: RunWriter) -> None:
        self.writer = writer
        self._failures_written = 0  # of which a written step tells
        self._error: OSError | None = None

    def add(self, kind: str, rows: Iterable[Row], *, retried: bool = False) -> bool:
        """Write rows of one kind; return whether they were taken. `retried`: if not, they are added again."""
        try:
            self.writer.write(kind, rows, retried=retried)
        except OSError as error:
            self._error = error
            return False
        return True

    def add_states(self, rows: list[dict[str, object]]) -> None:
        """Write rows of states."""
        self.add("states", rows)

    def require_taken(self) -> None:
        """Raise the error of the rows that were not taken since the last call, if any."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def head(self, step: int) -> Row:
        """Return whose the row of a step is."""
        writer = self.writer
        return {"step": step, "session": writer.session, "rank": writer.rank, "time": time.time()}

    def commit(self, row: Row, isolation: Isolation) -> None:
        """Write the row that makes a step part of the run, with the monitor's failures so far."""
        count = isolation.num_failures
        text = {"last_failure": isolation.last_failure} if count > self._failures_written else {}
        failed = bool(isolation.failures_now)
        self.writer.commit(row | {"num_failures": count, "failed": failed} | text)
        self._failures_written = count
