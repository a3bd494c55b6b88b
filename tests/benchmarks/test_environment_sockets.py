"""The servers of known capacity that the executor and the stress test are judged on do what their settings say; figures are the worst rows."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import anyio
import pytest
from benchmarks.environment_bank import socket_rows
from benchmarks.environment_bank.capacity_server import ServerProcess, Service, running_server

from benchmarks import environment_tools
from trimtab.tools import Executor
from trimtab.tools.stress.load_ramp import RAW
from trimtab.tools.targets import HttpService


def burst(server: ServerProcess, num: int) -> tuple[Counter[str], list[float]]:
    """Kinds and seconds of so many calls at once."""

    async def main() -> tuple[Counter[str], list[float]]:
        source = HttpService(server.url, name="tool", options={"adaptive": False})
        kinds, seconds = Counter[str](), list[float]()
        async with Executor(sources=[source], options=RAW) as executor:

            async def one() -> None:
                call = (await executor.call("tool", {})).call
                kinds[f"{call.blame}/{call.kind}"] += 1
                seconds.append(call.latency_s)

            async with anyio.create_task_group() as group:
                for _ in range(num):
                    group.start_soon(one)
        return kinds, seconds

    return anyio.run(main)


def test_workers_serve_one_call_each() -> None:
    """Nine calls to three workers need three rounds; a server that let all in would answer the last as soon as the first."""
    with running_server(Service(capacity=3, median_s=0.1)) as server:
        kinds, seconds = burst(server, 9)
    assert kinds == {"/": 9}
    assert min(seconds) >= 0.1
    assert sorted(seconds)[3] >= 0.2
    assert max(seconds) >= 0.3


def test_refusals_and_errors_above_the_capacity() -> None:
    service = Service(
        capacity=2, median_s=0.5, refuse_above=6, refuse_status=429, retry_after="1", error_above=4
    )
    with running_server(service) as server:
        kinds, _ = burst(server, 10)
    assert kinds == {"/": 4, "infrastructure/server_error": 2, "infrastructure/rate_limited": 4}


def test_a_killed_server_comes_back_at_its_port() -> None:
    first = ServerProcess(Service(median_s=0.01))
    try:
        assert burst(first, 1)[0] == {"/": 1}
        assert first.cpu_s() > 0
    finally:
        first.end()
    assert burst(first, 1)[0] == {"infrastructure/connection": 1}
    second = ServerProcess(Service(median_s=0.01), first.port)
    try:
        assert second.url == first.url
        assert burst(second, 1)[0] == {"/": 1}
    finally:
        second.end()


def test_settings_that_cannot_be_are_no_server() -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        ServerProcess(Service(), port=1 << 20)


def test_the_command_is_measured_over_a_socket() -> None:
    result, load = socket_rows.stress(
        Service(capacity=2, median_s=0.05), "--max-concurrency", "4", "--seconds", "0.5"
    )
    assert [one["concurrency"] for one in result["points"]] == [1, 2, 4]
    assert (
        0 < result["peak_throughput"] <= 40 * 1.1
    )  # two workers of 20 calls a second each, whatever the load
    assert load["client_cpu_frac"] > 0


def test_figures_are_the_worst_of_the_real_rows(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(environment_tools.TABLE.read_text(encoding="utf-8"))
    rows["knee_socket"][0] |= {"knee": 30.0, "capacity": 20.0}
    rows["wrk"][0] |= {"rate": 70.0, "wrk_rate": 100.0}
    rows["adaptive_socket"][0] |= {"adaptive": 50.0, "fixed": {"1": 40.0, "2": 200.0}}
    rows["outage_socket"] |= {"before": 100.0, "after": 20.0}
    table = tmp_path / "table.json"
    table.write_text(json.dumps(rows), encoding="utf-8")
    before = environment_tools.figures(quick=False)
    monkeypatch.setattr(environment_tools, "TABLE", table)
    monkeypatch.setattr(environment_tools, "baseline_equal", lambda _: 1.0)
    after = environment_tools.figures(quick=False)
    moved = {name: after[name] for name in after if after[name] != before[name]}
    assert moved == {"knee_error_frac": 0.5, "wrk_rate_error_frac": 0.3, "adaptive_of_best_frac": 0.25, "adaptive_recovered_frac": 0.2}  # fmt: skip
