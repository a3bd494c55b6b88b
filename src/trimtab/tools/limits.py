"""Concurrency limiter that can be resized, is first come first served, and costs nothing while it is free."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from trimtab.errors import ToolError
from trimtab.tools.extras import library

if TYPE_CHECKING:
    import anyio


class Limiter:
    """At most `limit` holders at a time. Not for threads: one event loop uses it.

    `try_acquire` takes a free slot without waiting; `acquire` waits in line; `release` hands the slot to the
    first in line. A cancelled waiter leaves the line and takes no slot along.

    >>> limiter = Limiter(1)
    >>> limiter.try_acquire(), limiter.try_acquire(), limiter.busy
    (True, False, 1)
    """

    __slots__ = ("_limit", "_line", "busy", "saturated")

    def __init__(self, limit: int) -> None:
        self._limit = positive(limit)
        self._line: OrderedDict[anyio.Event, None] = OrderedDict()
        self.busy = 0
        self.saturated = False  # did anyone have to wait since this was last set to False?

    @property
    def limit(self) -> int:
        """Slots in all. Lowering it takes slots away as they are released."""
        return self._limit

    @limit.setter
    def limit(self, value: int) -> None:
        self._limit = positive(value)
        self._wake()

    @property
    def waiting(self) -> int:
        """Callers in line."""
        return len(self._line)

    def try_acquire(self) -> bool:
        """Take a slot if one is free and nobody waits in line."""
        if self.busy < self._limit and not self._line:
            self.busy += 1
            return True
        return False

    async def acquire(self) -> None:
        """Take a slot, in line if there is none."""
        if self.busy < self._limit and not self._line:
            self.busy += 1
            return
        self.saturated = True
        event: anyio.Event = library("anyio").Event()
        self._line[event] = None
        arrived = False
        try:
            await event.wait()
            arrived = True
        finally:
            if not arrived:
                if event.is_set():  # the slot came with the cancellation: pass it on
                    self.release()
                else:
                    del self._line[event]

    def release(self) -> None:
        """Give a slot back."""
        self.busy -= 1
        if self._line:
            self._wake()

    def _wake(self) -> None:
        while self._line and self.busy < self._limit:
            self.busy += 1
            self._line.popitem(last=False)[0].set()


def positive(limit: int) -> int:
    """Return a limit of concurrency. ToolError for less than one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ToolError(f"a limit of concurrency is a whole number from 1, got {limit!r}")
    return limit
