"""An event loop whose clock jumps to the next timer: minutes of waiting take no time, and a busy machine changes no figure.

Only what waits by timers may run in it: no sockets, threads or processes.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import anyio

from trimtab.tools import Tool, ToolFailure


class _Selector(selectors.SelectSelector):
    """A selector that waits by moving the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is what timers have waited so far."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds of the virtual clock."""
        return self._virtual.now


def run_virtual(main: Callable[..., Any], *arguments: Any) -> Any:
    """`anyio.run` on the virtual clock, for the executor and the loops of load too."""

    def clock() -> float:
        return asyncio.get_running_loop().time()

    with ExitStack() as stack:
        for module in ("trimtab.tools.executor", "trimtab.tools.stress.load_loops"):
            stack.enter_context(patch(f"{module}.perf_counter", clock))
        return anyio.run(main, *arguments, backend_options={"loop_factory": VirtualLoop})


def virtual_server(fields: Mapping[str, float]) -> Tool:
    """The server of capacity_server.py as a tool; the fields are the same."""
    capacity, draws = fields.get("capacity", 1e6), random.Random(int(fields.get("seed", 0)))
    state: dict[str, Any] = {"inside": 0}

    async def serve(_: Any) -> str:
        now = anyio.current_time()
        age = now - state.setdefault("first", now)
        await anyio.sleep(0.0005)  # the way there
        if fields.get("outage_from", 1e9) <= age < fields.get("outage_to", 0.0):
            raise ConnectionResetError("dropped")
        if state["inside"] >= capacity + fields.get("queue", 1e9):
            raise ToolFailure("infrastructure", "unavailable", "HTTP 503")
        slots = state.setdefault("slots", anyio.Semaphore(int(capacity)))
        state["inside"] += 1
        try:
            async with slots:
                seconds = fields["mean_s"] * draws.lognormvariate(0, fields.get("sigma", 0.0))
                await anyio.sleep(
                    seconds * (1 + fields.get("thrash", 0.0) * max(state["inside"] - capacity, 0))
                )
        finally:
            state["inside"] -= 1
        return "done"

    return Tool("tool", serve, target="server", idempotent=True, adaptive=True)
