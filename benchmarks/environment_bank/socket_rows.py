"""The stress command and the executor on real sockets: servers of known capacity and latency in processes of their own.

The stress test is the command as a user types it, in a child process. Settings of the servers were written down before the first
measurement, and differ from those that the constants of `AdaptiveLimit` were tuned on (`KINDS` of environment_tools.py).
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from benchmarks.environment_bank.capacity_server import ServerProcess, Service, running_server

from trimtab.tools import Executor, ExecutorOptions, RetryOptions
from trimtab.tools.stress import CallMix, closed_loop
from trimtab.tools.targets import HttpService

Z99, DENSITY99 = 2.3263478740408408, 0.026652142203457673
"""Quantile 0.99 of the normal distribution, and its density there."""
KNEES = {
    "few": Service(capacity=5, median_s=0.12),
    "many": Service(capacity=24, median_s=0.15),
    "spread": Service(capacity=12, median_s=0.08, sigma=0.5, seed=1),
    "fresh_few": Service(capacity=7, median_s=0.09, sigma=0.6, seed=21),
    "fresh_many": Service(capacity=40, median_s=0.12, sigma=0.4, seed=22),
}
"""The first three stood before the first measurement, in which `spread` was 17 % off: its knee rested on the best of three levels and 30 lone
calls. It now rests on all levels that qualify (`load_ramp.capacity`); the fresh two were added then, before they were measured."""
P99 = [Service(median_s=0.06, sigma=0.6, seed=3), Service(median_s=0.1, sigma=0.4, seed=4)]
P99_RATE, P99_SECONDS = 120.0, 30.0
WRK = {
    "free": (Service(median_s=0.1, sigma=0.5, seed=5), 32),
    "saturated": (Service(capacity=16, median_s=0.1, sigma=0.2, seed=6), 32),
    "below": (Service(capacity=16, median_s=0.08), 8),
}
ADAPTIVE = {
    "queue": Service(capacity=20, median_s=0.12, sigma=0.4, seed=11),
    "small": Service(capacity=5, median_s=0.05, sigma=0.8, seed=12),
    "slow_down": Service(capacity=28, median_s=0.1, sigma=0.3, seed=13, slow_down=0.03),
    "503": Service(capacity=16, median_s=0.1, sigma=0.4, seed=14, refuse_above=24, retry_after="1"),
    "429": Service(capacity=9, median_s=0.06, sigma=0.2, seed=15, refuse_above=9, refuse_status=429, retry_after="1"),
    "500": Service(capacity=14, median_s=0.09, sigma=0.5, seed=16, error_above=20),
    "fresh_queue": Service(capacity=11, median_s=0.07, sigma=0.6, seed=31),
    "fresh_503": Service(capacity=7, median_s=0.09, sigma=0.5, seed=32, refuse_above=8, retry_after="2"),
    "fresh_429": Service(capacity=14, median_s=0.11, sigma=0.3, seed=33, refuse_above=16, refuse_status=429, retry_after="1"),
}  # fmt: skip
"""A latency knee, refusals with Retry-After above the capacity, errors above it. The first six stood before the first measurement, in which
`429` reached 0.65 of the best fixed limit: a refusal halved the limit. It now cuts it to 0.85 of itself; the fresh three were added then, before
they were measured."""
OUTAGE = Service(capacity=20, median_s=0.12, sigma=0.4, seed=17)
FRACTIONS = (0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5)
"""Fixed limits over the capacity; the number of callers is another one."""
CALLERS, FIXED_S, ADAPTIVE_S, RUNS = 64, 5.0, 15.0, 2


def stress(service: Service, *arguments: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The JSON of `trimtab stress tools URL`, and the load of client, server and machine meanwhile."""
    with running_server(service) as server:
        before, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "trimtab", "stress", "tools", server.url, "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
        seconds, after = time.monotonic() - before, resource.getrusage(resource.RUSAGE_CHILDREN)
        client = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
        load = {**_load(client / seconds), "server_cpu_frac": server.cpu_s() / seconds}
    return json.loads(done.stdout), load


def _load(client: float) -> dict[str, float]:
    return {
        "client_cpu_frac": client,
        "host_load": os.getloadavg()[0],
        "cpu_pressure_frac": _pressure(),
        "host_cores": float(os.cpu_count() or 1),
    }


def _pressure() -> float:
    """Fraction of the last minute in which something on this machine waited for a processor; NaN where the kernel does not say."""
    path = Path("/proc/pressure/cpu")
    match = re.search(r"avg60=([\d.]+)", path.read_text(encoding="ascii")) if path.exists() else None
    return float(match[1]) / 100 if match else math.nan


def knee_row(name: str) -> dict[str, Any]:
    """The knee that the command reports, with no option set, over the known capacity."""
    result, load = stress(KNEES[name])
    return {"kind": name, "capacity": KNEES[name].capacity, "knee": result["knee_concurrency"],
            "rate": KNEES[name].rate, "peak": result["peak_throughput"], **load}  # fmt: skip


def p99_row(service: Service) -> dict[str, Any]:
    """p99 of the open loop over that of the planted service times, on a server with room for every call."""
    options = ("--max-concurrency", "1", "--rate", f"{P99_RATE:g}", "--seconds", f"{P99_SECONDS:g}")
    result, load = stress(service, *options)
    opened = result["open_loop"]
    calls = opened["answered"]
    error = service.sigma * math.sqrt(0.01 * 0.99 / calls) / DENSITY99
    planted = service.median_s * math.exp(service.sigma * Z99)
    return {"seed": service.seed, "calls": calls, "planted_p99_s": planted, "p99_s": opened["p99_s"],
            "sent_late_p99_s": opened["sent_late_p99_s"], "sampling_error_frac": error, "errors": opened["errors"], **load}  # fmt: skip


def wrk_row(name: str, seconds: int = 12) -> dict[str, Any]:
    """Throughput and median of the command's closed loop and of wrk, with as many connections on the same server."""
    service, connections = WRK[name]
    result, load = stress(service, "--max-concurrency", str(connections))
    points = result["points"]
    point = next(one for one in points if one["concurrency"] == connections)
    with running_server(service) as server:
        options = ["-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "30s", "--latency"]
        done = subprocess.run(
            ["wrk", *options, server.url], capture_output=True, text=True, timeout=120, check=True
        )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    median = re.search(r"50%\s+([\d.]+)(us|ms|s)\b", done.stdout)
    if rate is None or median is None:
        raise RuntimeError(f"wrk printed {done.stdout!r}")
    unit = {"us": 1e-6, "ms": 1e-3, "s": 1.0}[median[2]]
    return {"kind": name, "connections": connections, "rate": point["throughput"], "wrk_rate": float(rate[1]),
            "p50_s": point["p50_s"], "wrk_p50_s": float(median[1]) * unit, **load}  # fmt: skip


def has_wrk() -> bool:
    """Is wrk installed here?"""
    return shutil.which("wrk") is not None


def adaptive_row(name: str) -> dict[str, Any]:
    """Answered calls a second with fixed limits, and the lowest of some runs with the adaptive one, which is told none."""
    service = ADAPTIVE[name]
    limits = [max(round(fraction * service.capacity), 1) for fraction in FRACTIONS]
    start, before = time.process_time(), time.monotonic()
    fixed = {str(limit): _throughput(service, limit, FIXED_S) for limit in (*limits, CALLERS)}
    runs = [_throughput(service, None, ADAPTIVE_S, seed) for seed in range(RUNS)]
    client = (time.process_time() - start) / (time.monotonic() - before)
    return {"kind": name, "adaptive": min(runs), "runs": runs, "fixed": fixed, **_load(client)}


def _throughput(service: Service, limit: int | None, seconds: float, seed: int = 0) -> float:
    with running_server(service) as server:

        async def main() -> float:
            async with _executor(server, limit) as executor:
                point = await closed_loop(
                    executor, _mix(executor), concurrency=CALLERS, seconds=seconds, seed=seed
                )
                return point.throughput  # fmt: skip

        return float(anyio.run(main))


def _executor(
    server: ServerProcess, limit: int | None, on_call: Callable[[Any], None] | None = None
) -> Executor:
    source = HttpService(server.url, name="tool", options={"idempotent": True})
    limits = {server.url.rstrip("/"): limit} if limit else {}
    options = ExecutorOptions(target_limits=limits, retry=RetryOptions(attempts=5))
    return Executor(sources=[source], options=options, on_call=on_call)


def _mix(executor: Executor) -> CallMix:
    return CallMix([(one.name, {}) for one in executor.tools], "benchmark")


def outage_row() -> dict[str, float]:
    """Answered calls a second before the server's process is killed, and from 4 s after it was started again on."""
    answered: list[float] = []
    moments: dict[str, float] = {}

    def note(call: Any) -> None:
        if not call.error:
            answered.append(time.monotonic())

    async def main() -> None:
        async with AsyncExitStack() as stack:
            first = ServerProcess(OUTAGE)
            stack.callback(first.end)
            executor = await stack.enter_async_context(_executor(first, None, note))

            async def outage() -> None:
                await anyio.sleep(6.0)
                await anyio.to_thread.run_sync(first.end)
                moments["killed"] = time.monotonic()
                await anyio.sleep(3.0)
                second = await anyio.to_thread.run_sync(ServerProcess, OUTAGE, first.port)
                stack.callback(second.end)
                moments["back"] = time.monotonic()

            async with anyio.create_task_group() as group:
                group.start_soon(outage)
                await closed_loop(executor, _mix(executor), concurrency=CALLERS, seconds=20.0)

    anyio.run(main)
    times, killed, back = np.array(answered), moments["killed"], moments["back"]
    before = np.count_nonzero((times > killed - 4) & (times <= killed)) / 4
    after = np.count_nonzero((times > back + 4) & (times <= back + 8)) / 4
    return {"before": float(before), "after": float(after), "down_s": back - killed,
            "first_after_s": float(times[times > back].min() - back)}  # fmt: skip
