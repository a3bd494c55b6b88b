"""Load on tools, in a closed loop (so many callers wait) and an open one (calls arrive, whoever waits)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any, Literal

from trimtab.catalog import bound
from trimtab.tools.executor import Executor
from trimtab.tools.extras import library
from trimtab.tools.stress.call_mix import CallMix
from trimtab.tools.stress.latency import LatencyHistogram
from trimtab.traces.core.tool_call import ToolCall

WARM_UP = bound("stress_warm_up")
"""Fraction of a closed loop whose calls count for no throughput."""
SHOWN = 200
"""Characters of a failed call's arguments and of its error that are shown."""
MAX_OPEN = int(bound("stress_max_open"))
"""Unanswered calls of an open loop, beyond which arrivals are counted as not sent."""


@dataclass
class Failure:
    """The first failed call of a tool and a kind, and how many there were."""

    tool: str
    kind: str  # "blame/kind"
    arguments: str  # of the first, as JSON, cut
    error: str  # of the first, cut
    count: int = 0


@dataclass
class LoadPoint:
    """What one level of load showed. Latency is that of answered calls; of an open loop it counts from the
    moment a call was due, so that a stalled server cannot hide the calls it kept from being sent."""

    mode: Literal["closed", "open"]
    concurrency: int  # callers; 0 in an open loop
    rate: float  # arrivals a second; NaN in a closed loop
    seconds: float = 0.0
    calls: int = 0
    answered: int = 0
    not_sent: int = 0
    throughput: float = float("nan")  # answered calls a second
    errors: Counter[str] = field(default_factory=Counter)  # "blame/kind"
    tools: Counter[str] = field(default_factory=Counter)  # tool -> failed calls
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict)  # (tool, "blame/kind") -> first
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    delay: LatencyHistogram = field(default_factory=LatencyHistogram)  # of an open loop's arrivals, by us

    @property
    def error_frac(self) -> float:
        """Fraction of the calls that failed or could not be sent."""
        total = self.calls + self.not_sent
        return (total - self.answered) / total if total else float("nan")

    def add(self, call: ToolCall, seconds: float) -> None:
        """Count a call that took so many seconds."""
        self.calls += 1
        if call.error:
            kind = f"{call.blame or 'unknown'}/{call.kind}"
            self.errors[kind] += 1
            self.tools[call.name] += 1
            failure = self.failures.get((call.name, kind))
            if failure is None:
                failure = self.failures[call.name, kind] = _failure(call, kind)
            failure.count += 1
        else:
            self.answered += 1
            self.latency.record(seconds)

    def row(self) -> dict[str, Any]:
        """The point as a JSON object."""
        return {
            "mode": self.mode, "concurrency": self.concurrency, "rate": self.rate, "seconds": self.seconds,
            "calls": self.calls, "answered": self.answered, "not_sent": self.not_sent,
            "throughput": self.throughput,
            "failed_rate": (self.calls - self.answered) / self.seconds if self.seconds else float("nan"),
            "error_frac": self.error_frac,
            "errors": dict(self.errors.most_common()),
            "failed_tools": dict(self.tools.most_common()), **self.latency.summary(),
            "sent_late_p99_s": self.delay.quantile(99),
        }  # fmt: skip


def _failure(call: ToolCall, kind: str) -> Failure:
    arguments = " ".join(json.dumps(call.arguments, default=str, ensure_ascii=False).split())
    text = " ".join(call.error.removeprefix(f"{call.kind}: ").split())
    return Failure(call.name, kind, arguments[:SHOWN], text[:SHOWN])


async def closed_loop(
    executor: Executor, mix: CallMix, *, concurrency: int, seconds: float, seed: int = 0
) -> LoadPoint:
    """Let callers call one after the other for some seconds, as rollouts do.

    Args:
        executor: Its limits must be above `concurrency`, or they are what is measured.
        mix: Calls to draw.
        concurrency: Callers at a time.
        seconds: How long calls are started; those on their way then are waited for.
        seed: Of the draws.

    Returns:
        The point.

    Example:
        point = await closed_loop(executor, mix, concurrency=8, seconds=3.0)
        point.throughput, point.latency.quantile(99)
    """
    point = LoadPoint("closed", concurrency, float("nan"))
    start = perf_counter()
    warm, end = start + WARM_UP * seconds, start + seconds
    timely = [0]

    async def caller(number: int) -> None:
        random = Random(f"{seed}/{number}")
        while (before := perf_counter()) < end:
            name, arguments = mix.draw(random)
            call = (await executor.call(name, arguments)).call
            after = perf_counter()
            point.add(call, after - before)
            if not call.error and warm < after <= end:
                timely[0] += 1

    async with library("anyio").create_task_group() as group:
        for number in range(concurrency):
            group.start_soon(caller, number)
    point.seconds = perf_counter() - start
    point.throughput = timely[0] / (end - warm)
    return point


async def open_loop(
    executor: Executor, mix: CallMix, *, rate: float, seconds: float, seed: int = 0
) -> LoadPoint:
    """Send calls at the times of a Poisson process, whether or not others were answered.

    Args:
        executor: Its limits must not hold calls back.
        mix: Calls to draw.
        rate: Mean arrivals a second.
        seconds: How long calls arrive; all are waited for.
        seed: Of the draws and the arrivals.

    Returns:
        The point.

    Example:
        point = await open_loop(executor, mix, rate=50.0, seconds=6.0)
        point.latency.quantile(99), point.not_sent
    """
    anyio = library("anyio")
    point, random = LoadPoint("open", 0, rate), Random(f"{seed}/open")
    due = start = perf_counter()
    out = [0]

    async def one(name: str, arguments: Any, moment: float) -> None:
        try:
            call = (await executor.call(name, arguments)).call
            point.add(call, perf_counter() - moment)
        finally:
            out[0] -= 1

    async with anyio.create_task_group() as group:
        while (due := due + random.expovariate(rate)) < start + seconds:
            now = perf_counter()
            if due > now:
                await anyio.sleep(due - now)
            else:
                await anyio.lowlevel.checkpoint()  # late: the latency counts from when it was due
            point.delay.record(max(perf_counter() - due, 0.0))
            if out[0] >= MAX_OPEN:
                point.not_sent += 1
                continue
            out[0] += 1
            group.start_soon(one, *mix.draw(random), due)
    point.seconds = perf_counter() - start
    point.throughput = point.answered / point.seconds
    return point
