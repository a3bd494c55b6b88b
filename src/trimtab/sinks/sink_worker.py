"""The thread of one sink, with a bounded queue: what a sink does costs the caller an append.

Steps that find the queue full push the oldest one out, and are counted; so are failed steps and numbers that
the receiver cannot hold. After a failure the thread pauses, longer each time. It is a daemon: a sink that
hangs does not keep the process from ending.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trimtab.catalog import bound
from trimtab.report.control_characters import escape_controls
from trimtab.sinks.row_translation import StoredStep, Translation
from trimtab.sinks.sink import Sink, SinkRun

log = logging.getLogger("trimtab")

_FIRST_PAUSE_S = 0.1
_MAX_TEXT = 200
_CREDENTIALS = re.compile(r"://[^/@\s]+@")


@dataclass(frozen=True)
class SinkCounts:
    """What became of the steps of a run in one sink."""

    written: int = 0  # steps
    dropped: int = 0  # steps that were pushed out of the queue, or still waited at the deadline
    failed: int = 0  # steps that the sink raised on
    refused: int = 0  # numbers that the receiver cannot hold
    stuck_s: float = 0.0  # seconds that it has not come back for, where that is long
    failure: str = ""  # the last failure

    @property
    def lossless(self) -> bool:
        """Whether nothing was lost so far."""
        return not (self.dropped or self.failed or self.refused or self.stuck_s)


@dataclass(frozen=True)
class _Request:
    """A call of the sink's `flush` or `close`, behind the steps that wait."""

    call: Callable[[], None]
    done: threading.Event
    last: bool = False


class SinkWorker:
    """Feeds one sink in a thread of its own, which starts with the first step.

    Args:
        sink: the sink.
        run: what it is opened for.
        capacity: steps that may wait; None for the default.
    """

    def __init__(self, sink: Sink, run: SinkRun, capacity: int | None = None) -> None:
        self.sink, self.run = sink, run
        self.capacity = int(bound("sink_queue")) if capacity is None else capacity
        self._translation = Translation(run.run_id)
        self._queue: deque[StoredStep | _Request] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._open, self._failures_in_row, self._busy_since = False, 0, 0.0
        self._written = self._dropped = self._failed = self._refused = 0
        self._failure = ""
        self._opening, self._progress_at = False, 0.0

    def put(self, stored: StoredStep) -> None:
        """Hand over a step; never waits for the sink."""
        with self._changed:
            steps = [one for one in self._queue if isinstance(one, StoredStep)]
            if len(steps) >= self.capacity:
                self._queue.remove(steps[0])
                self._dropped += 1
            self._append(stored)

    def request(self, *, last: bool = False) -> threading.Event:
        """Ask for a flush, or with `last` for the end; the event is set when it is done."""
        done = threading.Event()
        with self._changed:
            if self._thread is None and not self._queue:
                done.set()
            else:
                self._append(_Request(self.sink.close if last else self.sink.flush, done, last))
        return done

    def abandon(self) -> None:
        """Tell a sink that has an `abandon` that nobody waits for it any more: it ends its processes."""
        abandon = getattr(self.sink, "abandon", None)
        if abandon is not None:
            abandon()

    def counts(self) -> SinkCounts:
        """Return what became of the steps so far."""
        with self._changed:
            busy = time.monotonic() - self._busy_since if self._busy_since else 0.0
            stuck = round(busy, 1) if busy >= bound("sink_stuck") else 0.0
            return SinkCounts(self._written, self._dropped, self._failed, self._refused, stuck, self._failure)

    @property
    def patience_end(self) -> float:
        """Monotonic time until which the end of a run waits: while it opens, and after its last success."""
        with self._changed:
            if self._opening and self._busy_since:
                return self._busy_since + bound("sink_open")
            return self._progress_at + bound("sink_deadline")

    @property
    def num_waiting(self) -> int:
        """Steps that the sink has not taken yet, the one that it is busy with among them."""
        with self._changed:
            waiting = sum(isinstance(one, StoredStep) for one in self._queue)
            return waiting + bool(self._busy_since)

    def _append(self, item: StoredStep | _Request) -> None:
        self._queue.append(item)
        if self._thread is None:
            name = f"trimtab-sink-{self.sink.name}"
            self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
            self._thread.start()
        self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                item = self._queue.popleft()
                self._busy_since = time.monotonic()
            failure = self._attempt(item)
            with self._changed:
                self._busy_since = 0.0
                self._book(item, failure)
                if isinstance(item, _Request):
                    item.done.set()
                    if item.last:
                        self._thread, self._open = None, False
                        return
                if failure:
                    self._pause()

    def _attempt(self, item: StoredStep | _Request) -> str:
        """Do one thing; return why it failed, empty where it did not."""
        try:
            if isinstance(item, _Request):
                if self._open:
                    item.call()
                return ""
            record = self._translation.record(item)  # first: it remembers the incidents of a failed step too
            if not self._open:
                self._opening = True
                self.sink.open(self.run)
                self._open = True
            self._refused += self.sink.write(record)
        except Exception as error:  # a library or a user's sink may raise anything
            return failure_text(error)
        finally:
            self._opening = False
        return ""

    def _book(self, item: StoredStep | _Request, failure: str) -> None:
        is_step = isinstance(item, StoredStep)
        if not failure:
            self._written += is_step
            self._progress_at = time.monotonic()
            self._failures_in_row = 0
            return
        self._failed += is_step
        self._failures_in_row += 1
        if failure != self._failure:
            log.warning("trimtab: sink %s failed: %s", self.sink.name, failure)
        self._failure = failure

    def _pause(self) -> None:
        """Wait after a failure, unless somebody waits for a flush or the end."""
        pause_s = min(bound("sink_pause"), _FIRST_PAUSE_S * 2.0 ** min(self._failures_in_row - 1, 20))
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0 and not self._is_asked():
            self._changed.wait(left)

    def _is_asked(self) -> bool:
        return any(isinstance(one, _Request) for one in self._queue)


def failure_text(error: Exception) -> str:
    """Return the class and the start of the text of an error, on one line and without a URL's credentials.

    Args:
        error: of a tracker's library, which may hold a server's whole page.

    Returns:
        At most 200 characters.

    Example:
        >>> failure_text(OSError("http://me:secret@host failed:\\n<html>"))
        'OSError: http://host failed: <html>'
    """
    text = " ".join(_CREDENTIALS.sub("://", str(error)).split())
    line = f"{type(error).__name__}: {escape_controls(text)}"
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 3]}..."
