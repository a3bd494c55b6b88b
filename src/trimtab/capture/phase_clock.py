"""Seconds of the phases of a step: rollout, tools, reward, forward, backward, optimizer, sync, or any others.

The mistake it prevents: one slow rank of a thousand shows as a slow step on all of them, and nothing says
whose phase it was.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from trimtab.capture.clean_values import clean_name

PHASES = ("rollout", "tools", "reward", "forward", "backward", "optimizer", "sync")
"""Names that trimtab uses itself; a loop may name its own."""

WAITS = frozenset({"sync"})
"""Phases in which a rank waits for others: the rank that waits the shortest time is the slow one."""

MAX_PHASES = 64
"""Phases of a step with a name of their own; the time of further ones is added up under `other`."""


@dataclass(eq=False)
class _Running:
    """A phase that has begun."""

    clock: PhaseClock
    name: str
    waits: bool
    since: float
    num_inside: int = 0  # phases that run inside it now; several where they are asynchronous


_CURRENT: ContextVar[_Running | None] = ContextVar("trimtab_phase", default=None)


class PhaseClock:
    """Adds up wall seconds by phase until `take`.

    While a phase runs inside another one, the outer one stands still. So the phases of one thread add up to
    its wall time. Threads, and phases of asynchronous tasks that run at once, are counted each, like workers.

    Example:
        >>> clock = PhaseClock()
        >>> with clock.phase("rollout"):
        ...     with clock.phase("tools"):
        ...         pass
        >>> sorted(clock.take()["phases_s"])
        ['rollout', 'tools']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._waits: set[str] = set()
        self._lock = threading.Lock()
        self.failed_in = ""
        """Innermost phase that the last exception left; empty when none did since `take`."""
        self._failed_by = 0

    @contextmanager
    def phase(self, name: str, *, waits: bool = False, device_sync: bool = False) -> Iterator[None]:
        """Time the block under `name`.

        Args:
            name: what is timed, as one of `PHASES`.
            waits: the block waits for other ranks, as a barrier does; `sync` always does.
            device_sync: wait for the GPU before both readings of the clock, so that kernels are counted where
                they were launched. It costs the overlap of host and device.
        """
        outer = _CURRENT.get()
        outer = outer if outer is not None and outer.clock is self else None
        _wait_for_device(device_sync)
        mine = _Running(self, clean_name(name), waits, time.perf_counter())
        self._pause(outer, mine.since)
        _CURRENT.set(mine)
        failed = True
        try:
            yield
            failed = False
        finally:
            if failed:
                self._note_failure(mine.name, id(sys.exc_info()[1]))
            _wait_for_device(device_sync)
            now = time.perf_counter()
            self.add(mine.name, now - mine.since, waits=waits)
            self._go_on(outer, now)
            _CURRENT.set(outer)

    def _note_failure(self, name: str, error: int) -> None:
        """An exception leaves a phase; on its way out through the outer ones it keeps the innermost."""
        if error != self._failed_by:
            self.failed_in, self._failed_by = name, error

    def _pause(self, outer: _Running | None, now: float) -> None:
        with self._lock:
            if outer is not None:
                outer.num_inside += 1
                if outer.num_inside == 1:
                    self._add(outer.name, now - outer.since, outer.waits)

    def _go_on(self, outer: _Running | None, now: float) -> None:
        with self._lock:
            if outer is not None:
                outer.num_inside -= 1
                outer.since = now

    def add(self, name: str, seconds: float, *, waits: bool = False) -> None:
        """Add seconds that were measured elsewhere, as by a rollout worker."""
        with self._lock:
            self._add(clean_name(name), seconds, waits)

    def _add(self, name: str, seconds: float, waits: bool) -> None:
        known = name in self._seconds or len(self._seconds) < MAX_PHASES
        name = name if known else "other"
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        if waits and name not in WAITS:
            self._waits.add(name)

    def take(self) -> dict[str, Any]:
        """Return the fields of the step's row, none where no phase was timed, and begin anew.

        A phase that is still open is counted, whole, in the step in which it ends.
        """
        with self._lock:
            seconds, self._seconds = self._seconds, {}
            waits, self._waits = self._waits, set()
            self.failed_in, self._failed_by = "", 0
        if not seconds:
            return {}
        return {"phases_s": seconds} | ({"waits": sorted(waits)} if waits else {})


def phases_of(row: Mapping[str, Any]) -> tuple[dict[str, float], frozenset[str]]:
    """Return the phases of a row of steps in seconds, and which of them are waits; a malformed part is left
    out.

    >>> phases_of({"phases_s": {"rollout": 2.0, "barrier": 0.1, "x": None}, "waits": ["barrier"]})[0]
    {'rollout': 2.0, 'barrier': 0.1}
    """
    seconds, waits = row.get("phases_s"), row.get("waits")
    if not isinstance(seconds, Mapping):
        return {}, WAITS
    numbers = {
        str(name): float(value)
        for name, value in seconds.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    }
    more = [str(name) for name in waits] if isinstance(waits, (list, tuple)) else []
    return numbers, WAITS | frozenset(more)


def _wait_for_device(wanted: bool) -> None:
    torch = sys.modules.get("torch") if wanted else None
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
