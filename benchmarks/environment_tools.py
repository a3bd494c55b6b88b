"""The executor and the stress test of tools against known answers: a part of benchmarks/environment.py.

    python benchmarks/environment.py --part tools --run

`--run` needs the two real MCP servers, by TRIMTAB_MCP_EVERYTHING (npm @modelcontextprotocol/server-everything) and TRIMTAB_MCP_TIME (PyPI
mcp-server-time), each a command line; without them their rows stay as committed, and so do the rows against wrk where it is not installed.
Servers of known capacity run twice: on a virtual clock, where nothing else takes time, and as processes behind real sockets
(`environment_bank/socket_rows.py`), measured by the command that a user types. Figures are the worst of the real rows.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import numpy as np
from benchmarks.environment_bank import socket_rows
from benchmarks.environment_bank.virtual_clock import run_virtual, virtual_server

from trimtab.tools import Executor, ExecutorOptions, RetryOptions, tool
from trimtab.tools.exclusion import excluded_advantages
from trimtab.tools.stress import CallMix, StressOptions, closed_loop, open_loop, run_stress
from trimtab.tools.stress.load_ramp import RAW
from trimtab.tools.targets import McpServer
from trimtab.tools.tool_definition import with_options

TABLE = Path(__file__).parent / "results" / "environment_tools.json"
MIX = CallMix([("tool", {})], "benchmark")
MCP = {"everything": ("TRIMTAB_MCP_EVERYTHING", "echo", {"message": "tofa"}),
       "time": ("TRIMTAB_MCP_TIME", "get_current_time", {"timezone": "UTC"})}  # fmt: skip
Z99 = 2.3263478740408408
"""Normal quantile of 0.99."""


def figures(quick: bool = False) -> dict[str, float]:
    """The figures: those of the committed rows, and in a quick form the cheap ones measured now."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    result = {
        "executor_cpu_ratio": max(rows["executor"]["ratio"], rows["executor"]["ratio_64"]),
        "executor_growth_bytes": rows["memory"]["growth_bytes"],
        "mcp_cpu_ratio": max(row["ratio"] for row in rows["mcp"]),
        "knee_error_frac": _error(rows["knee_socket"], "knee", "capacity"),
        "p99_error_frac": _error(rows["p99_socket"], "p99_s", "planted_p99_s"),
        "wrk_rate_error_frac": _error(rows["wrk"], "rate", "wrk_rate"),
        "wrk_median_error_frac": _error(rows["wrk"], "p50_s", "wrk_p50_s"),
        "virtual_knee_error_frac": _error(rows["knee"], "knee", "capacity"),
        "virtual_p99_error_frac": _error(rows["p99"], "p99_s", "planted_p99_s"),
        "adaptive_of_best_frac": _of_best(rows["adaptive"] + rows["adaptive_socket"]),
        "virtual_adaptive_of_best_frac": _of_best(rows["adaptive"]),
        "adaptive_recovered_frac": min(
            row["after"] / row["before"] for row in (rows["outage"], rows["outage_socket"])
        ),
        "chaos_finished_frac": _frac(rows["chaos"], "finished"),
        "chaos_named_frac": _frac(rows["chaos"], "named"),
        "chaos_faults_rewarded": sum(
            row["rewarded"] + row["moved"] + row["wrong_values"] for row in rows["chaos"]
        ),
        "baseline_equal": baseline_equal(20 if quick else 200),
    }
    if quick:
        result |= {"executor_cpu_ratio_now": executor_row(2_000)["ratio"]}
    return {name: round(float(value), 4) for name, value in result.items()}


def measure() -> None:
    """Measure every row again; the table is written after each group of rows."""
    rows: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    groups: dict[str, Callable[[], Any]] = {
        "executor": lambda: executor_row(20_000),
        "mcp": lambda: mcp_rows() or rows.get("mcp", []),
        "knee": lambda: [knee_row(capacity) for capacity in (5, 12)],
        "p99": lambda: [p99_row(seed) for seed in (0, 1)],
        "adaptive": lambda: [adaptive_row(name, fields) for name, fields in KINDS.items()],
        "outage": outage_row,
        "knee_socket": lambda: [socket_rows.knee_row(name) for name in socket_rows.KNEES],
        "p99_socket": lambda: [socket_rows.p99_row(service) for service in socket_rows.P99],
        "wrk": lambda: (
            [socket_rows.wrk_row(name) for name in socket_rows.WRK]
            if socket_rows.has_wrk()
            else rows.get("wrk", [])
        ),
        "adaptive_socket": lambda: [socket_rows.adaptive_row(name) for name in socket_rows.ADAPTIVE],
        "outage_socket": socket_rows.outage_row,
        "memory": lambda: memory_row(1_000_000),
        "chaos": chaos_rows,
    }
    chosen = os.environ.get("TRIMTAB_GROUPS", ",".join(groups)).split(",")
    for name in chosen:
        rows[name] = groups[name]()
        TABLE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def chaos_rows() -> list[dict[str, Any]]:
    """A lab run under each mode of chaos."""
    from benchmarks.environment_bank.chaos_run import chaos_run

    from trimtab.tools.chaos import MODES

    return [chaos_run(mode) for mode in MODES]


def _frac(rows: list[dict[str, Any]], key: str) -> float:
    return sum(bool(row[key]) for row in rows) / len(rows)


def _error(rows: list[dict[str, Any]], measured: str, planted: str) -> float:
    """The largest relative error."""
    return max(abs(row[measured] / row[planted] - 1) for row in rows)


def _of_best(rows: list[dict[str, Any]]) -> float:
    return min(row["adaptive"] / max(row["fixed"].values()) for row in rows)


async def null() -> None:
    """A tool that does nothing."""


def executor_row(calls: int) -> dict[str, float]:
    """CPU of a null call through the executor over that of anyio's CapacityLimiter with fail_after, with 1 caller and 64."""

    def cpu(run: Callable[[], Any]) -> float:
        start = time.process_time()
        anyio.run(run)
        return time.process_time() - start

    def executor() -> Executor:
        return Executor([tool(null, adaptive=True)])

    def several(one: Callable[[int], Any], callers: int) -> Callable[[], Any]:
        async def run() -> None:
            async with anyio.create_task_group() as group:
                for _ in range(callers):
                    group.start_soon(one, calls // callers)

        return run

    def limiter_loop(limiter: anyio.CapacityLimiter) -> Callable[[int], Any]:
        async def loop(count: int) -> None:
            for _ in range(count):
                async with limiter:
                    with anyio.fail_after(5):
                        await null()

        return loop

    def executor_loop(one: Executor) -> Callable[[int], Any]:
        async def loop(count: int) -> None:
            for _ in range(count):
                await one.call("null", {})

        return loop

    def ratio(callers: int) -> float:
        async def bare() -> None:
            await several(limiter_loop(anyio.CapacityLimiter(32)), callers)()

        return median(cpu(several(executor_loop(executor()), callers)) / cpu(bare) for _ in range(5))

    return {"calls": calls, "ratio": ratio(1), "ratio_64": ratio(64)}


def memory_row(calls: int) -> dict[str, float]:
    """Growth of the process's peak memory over many calls, after some that warmed it up."""

    async def loop(count: int) -> None:
        executor = Executor([tool(null, adaptive=True)])
        for _ in range(count):
            await executor.call("null", {})

    anyio.run(loop, 20_000)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    anyio.run(loop, calls)
    return {
        "calls": calls,
        "growth_bytes": 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start),
    }


def mcp_rows(rounds: int = 12, calls: int = 160) -> list[dict[str, Any]]:
    """Client CPU of calls through the executor over that of the bare SDK, at 1 and 16 callers, in turns; empty without servers."""
    rows = []
    for name, (variable, called, arguments) in MCP.items():
        if variable not in os.environ:
            continue
        command = shlex.split(os.environ[variable])
        for callers in (1, 16):
            bare, ours = zip(
                *anyio.run(_mcp_turns, command, called, arguments, (callers, rounds, calls)), strict=True
            )
            ratio = median(b / a for a, b in zip(bare, ours, strict=True))
            rows.append({"server": name, "callers": callers, "ratio": ratio, "bare_us": 1e6 * median(bare) / calls,
                         "executor_us": 1e6 * median(ours) / calls})  # fmt: skip
    return rows


async def _mcp_turns(
    command: list[str], name: str, arguments: dict[str, Any], sizes: tuple[int, int, int]
) -> list[tuple[float, float]]:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    callers, rounds, calls = sizes
    turns = []
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        transport = stdio_client(StdioServerParameters(command=command[0], args=command[1:]), errlog=nowhere)
        async with Client(transport) as client, Executor(sources=[McpServer(command)]) as executor:
            await client.list_tools()

            async def bare() -> None:
                result = await client.session.call_tool(name, arguments)
                assert not result.is_error

            async def ours() -> None:
                assert (await executor.call(name, arguments)).ok

            for _ in range(rounds + 1):  # the first warms up
                turns.append((await _cpu(bare, callers, calls), await _cpu(ours, callers, calls)))
    return turns[1:]


async def _cpu(one: Callable[[], Any], callers: int, calls: int) -> float:
    async def caller() -> None:
        for _ in range(calls // callers):
            await one()

    start = time.process_time()
    async with anyio.create_task_group() as group:
        for _ in range(callers):
            group.start_soon(caller)
    return time.process_time() - start


def _raw(fields: dict[str, float]) -> Executor:
    """A server on the virtual clock without limits of ours."""
    return Executor([with_options(virtual_server(fields), adaptive=False)], options=RAW)


def knee_row(capacity: int) -> dict[str, float]:
    """The knee of a server that serves so many calls at a time, found by the ramp."""
    fields = {"capacity": capacity, "mean_s": 0.1}
    options = StressOptions(seconds=5.0, max_concurrency=64)

    async def main() -> Any:
        return await run_stress(_raw(fields), MIX, options)

    result = run_virtual(main)
    return {**fields, "knee": result.knee, "peak": result.peak}


def p99_row(seed: int) -> dict[str, float]:
    """p99 of an open loop on a server with lognormal service times and room for every call."""
    median_s, sigma = 0.08, 0.6

    async def main() -> Any:
        executor = _raw({"mean_s": median_s, "sigma": sigma, "seed": seed})
        return await open_loop(executor, MIX, rate=80.0, seconds=120.0, seed=seed)

    point = run_virtual(main)
    planted = median_s * math.exp(sigma * Z99)
    return {
        "seed": seed,
        "calls": point.answered,
        "planted_p99_s": planted,
        "p99_s": point.latency.quantile(99),
    }


KINDS: dict[str, dict[str, float]] = {
    "queue": {"capacity": 12, "mean_s": 0.08, "sigma": 0.3},
    "noisy": {"capacity": 12, "mean_s": 0.08, "sigma": 1.0},
    "reject": {"capacity": 12, "mean_s": 0.08, "sigma": 0.3, "queue": 6},
    "thrash": {"capacity": 12, "mean_s": 0.08, "sigma": 0.3, "thrash": 0.05},
}
"""Servers beyond their capacity: calls wait, are refused, or slow each other down."""
FIXED, CALLERS, SECONDS = (4, 8, 10, 12, 14, 16, 24, 48, 64), 64, 20.0


def adaptive_row(name: str, fields: dict[str, float]) -> dict[str, Any]:
    """Answered calls a second with fixed limits and with the adaptive one, which is not told any, growth from its first limit included."""

    def throughput(limit: int | None) -> float:
        async def main() -> float:
            options = ExecutorOptions(
                target_limits={"server": limit} if limit else {}, retry=RetryOptions(attempts=5)
            )
            executor = Executor([virtual_server(fields)], options=options)
            return (await closed_loop(executor, MIX, concurrency=CALLERS, seconds=SECONDS)).throughput

        return float(run_virtual(main))

    return {
        "kind": name,
        "adaptive": throughput(None),
        "fixed": {str(limit): throughput(limit) for limit in FIXED},
    }


def outage_row() -> dict[str, float]:
    """Answered calls a second before an outage of 3 s and from 4 s after it on."""
    fields = {**KINDS["queue"], "outage_from": 6.0, "outage_to": 9.0}
    ages: list[float] = []

    async def main() -> None:
        def note(call: Any) -> None:
            if not call.error:
                ages.append(anyio.current_time())

        options = ExecutorOptions(retry=RetryOptions(attempts=5))
        executor = Executor([virtual_server(fields)], on_call=note, options=options)
        await closed_loop(executor, MIX, concurrency=CALLERS, seconds=20.0)

    run_virtual(main)
    times = np.array(ages)
    counts = {
        name: float(np.count_nonzero((times > low) & (times <= low + 4)) / 4)
        for name, low in (("before", 2.0), ("after", 13.0))
    }
    return {**counts, "first_after_s": float(times[times > 9].min() - 9)}


def baseline_equal(seeds: int) -> float:
    """1 where k broken episodes a group leave all other advantages as they were without them, bit by bit."""

    def advantages(rewards: np.ndarray, group: np.ndarray) -> np.ndarray:
        result = np.empty_like(rewards)
        for one in np.unique(group):
            rows = group == one
            result[rows] = (rewards[rows] - rewards[rows].mean()) / (rewards[rows].std(ddof=1) + 1e-4)
        return result

    equal = True
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        group = np.repeat(np.arange(16), 8)
        rewards = rng.normal(size=128) * rng.choice([1e-3, 1.0, 1e3], 128)
        broken = np.concatenate([rng.permutation(8) < k % 7 for k in range(16)])
        poisoned = np.where(broken, np.nan, rewards)
        mine = excluded_advantages(poisoned, group, ~broken, advantages)
        equal &= (
            mine[~broken].tobytes() == advantages(rewards[~broken], group[~broken]).tobytes()
            and not mine[broken].any()
        )
    return float(equal)
