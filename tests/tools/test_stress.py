"""Stress test: latencies against numpy, stalls that an open loop must show, the knee of a known server, the command."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from random import Random
from typing import Any

import anyio
import jsonschema_rs
import numpy as np
import pytest

from tests.support import cli
from tests.tools.servers import mcp_script
from trimtab.errors import ToolError
from trimtab.report.tools.tool_stress_page import render_tool_stress
from trimtab.report.tools.tool_stress_verdict import delay_lines, tool_stress_verdict
from trimtab.tools import Executor, tool
from trimtab.tools.chaos import MODES, SILENT, Chaos, parse_rates, with_chaos
from trimtab.tools.stress import (
    CallMix,
    LoadPoint,
    Objective,
    StressOptions,
    closed_loop,
    generated_mix,
    open_loop,
    run_stress,
    trace_mix,
)
from trimtab.tools.stress.latency import LatencyHistogram
from trimtab.tools.stress.load_capacity import capacity
from trimtab.tools.stress.load_ramp import RAW
from trimtab.tools.stress.schema_values import draw_arguments

MIX = CallMix([("work", {})], "test")


def server(capacity: int, seconds: float) -> Executor:
    slots: list[Any] = []

    async def work() -> str:
        if not slots:
            slots.append(anyio.Semaphore(capacity))
        async with slots[0]:
            await anyio.sleep(seconds)
        return "done"

    return Executor([tool(work)], options=RAW)


def test_quantiles_are_those_of_numpy_within_a_thousandth() -> None:
    values = np.random.default_rng(0).lognormal(-4, 1, 20_000)
    latencies = LatencyHistogram()
    for value in values.tolist():
        latencies.record(value)
    for percent in (50, 90, 99, 99.9):
        expected = np.quantile(values, percent / 100, method="inverted_cdf")
        assert latencies.quantile(percent) == pytest.approx(expected, rel=2e-3)
    assert latencies.mean() == pytest.approx(values.mean())
    assert math.isnan(LatencyHistogram().quantile(99))


def test_an_open_loop_shows_a_stall_in_full_and_a_closed_one_hides_it() -> None:
    """One caller, 0.5 s of stall in a second: of a closed loop's calls one is slow, of the arrivals about half are."""

    def stalling() -> Executor:
        begun: list[float] = []

        async def work() -> str:
            begun.append(anyio.current_time())
            left = begun[0] + 0.6 - anyio.current_time()
            if 0 < left < 0.5:
                await anyio.sleep(left)
            await anyio.sleep(0.002)
            return "done"

        return Executor([tool(work)], options=RAW)

    async def main() -> tuple[float, float]:
        closed = await closed_loop(stalling(), MIX, concurrency=1, seconds=1.0)
        opened = await open_loop(stalling(), MIX, rate=100, seconds=1.0)
        return closed.latency.quantile(90), opened.latency.quantile(90)

    closed, opened = anyio.run(main)
    assert closed < 0.1 < 0.3 < opened


def test_a_client_that_sends_late_says_so() -> None:
    """A tool that blocks the event loop keeps the client from sending: the delay is ours and is reported as such."""

    def late(block: float) -> tuple[float, list[str]]:
        async def work() -> str:
            time.sleep(block)
            await anyio.sleep(0.02)
            return "done"

        async def main() -> Any:
            return await open_loop(Executor([tool(work)], options=RAW), MIX, rate=20.0, seconds=1.5)

        row = anyio.run(main).row()
        return row["sent_late_p99_s"], delay_lines(row)

    delay, lines = late(0.06)
    assert delay > 0.05
    assert "too busy to send calls in time" in lines[0]
    assert delay_lines({"sent_late_p99_s": 0.01, "p99_s": 0.11}) == []
    assert delay_lines({"sent_late_p99_s": float("nan"), "p99_s": float("nan")}) == []


def point(callers: int, throughput: float, latency: float, count: int = 100) -> LoadPoint:
    one = LoadPoint("closed", callers, math.nan, throughput=throughput, calls=count, answered=count)
    for _ in range(count):
        one.latency.record(latency)
    return one


def test_capacity_is_a_mean_over_levels() -> None:
    """Levels without a queue give the latency, levels above the knee the throughput: a lucky one weighs no more than another."""
    rows = [(1, 9.0, 0.11, 30), (2, 20.0, 0.1, 60), (4, 40.0, 0.1, 120), (8, 80.0, 0.1, 240), (16, 105.0, 0.16, 300),
            (32, 95.0, 0.32, 300), (64, 60.0, 0.64, 300)]  # fmt: skip
    points = {callers: point(callers, *rest) for callers, *rest in rows}
    knee, peak = capacity(points)
    assert peak == pytest.approx(100.0)  # of 105 and 95; 60 is no plateau
    assert knee == pytest.approx(100 * (30 * 0.11 + 180 * 0.1) / 210, rel=2e-3)
    assert capacity({1: points[1]}) == (pytest.approx(9 * 0.11, rel=2e-3), 9.0)
    none = capacity({1: LoadPoint("closed", 1, math.nan, throughput=0.0)})
    assert none[1] == 0.0
    assert math.isnan(none[0])


def test_the_knee_and_the_objective_of_a_server_of_known_capacity() -> None:
    async def main() -> Any:
        options = StressOptions(
            seconds=0.8, max_concurrency=16, objective=Objective(p99_s=0.3, error_rate=0.0)
        )
        return await run_stress(server(4, 0.1), MIX, options)

    result = anyio.run(main)
    assert 2 < result.knee < 8  # on a busy machine; benchmarks/environment.py holds it to a tenth
    assert result.holds is not None
    assert 1 <= result.holds <= 12  # 12 callers wait 0.3 s
    assert result.met
    assert result.forecast["min_tool_seconds_per_step"] > 20  # 25.6 s on an idle machine


def test_a_missed_objective_and_no_objective() -> None:
    async def main(objective: Objective) -> Any:
        return await run_stress(
            server(1, 0.02), MIX, StressOptions(seconds=0.1, max_concurrency=2, objective=objective)
        )

    missed = anyio.run(main, Objective(p99_s=0.001))
    assert (missed.met, missed.holds) == (False, 0)
    verdict = tool_stress_verdict("<b>t</b>", {"source": "x", "tools": ["<i>"]}, missed.row())
    assert (verdict["exit_code"], verdict["verdict"]) == (1, "missed")
    page = render_tool_stress(verdict)
    assert "<b>t</b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;t" in page
    assert anyio.run(main, Objective()).met


@pytest.mark.parametrize("seed", range(20))
def test_drawn_arguments_satisfy_their_schema(seed: int) -> None:
    schema = {
        "type": "object",
        "$defs": {
            "Where": {
                "type": "object",
                "properties": {"city": {"enum": ["Rome", "Oslo"]}},
                "required": ["city"],
            }
        },
        "properties": {
            "n": {"type": "integer", "exclusiveMinimum": 2, "maximum": 20, "multipleOf": 5},
            "x": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "text": {"type": "string", "minLength": 3, "maxLength": 7},
            "when": {"type": "string", "format": "date-time"},
            "many": {"type": "array", "items": {"type": ["boolean", "null"]}, "minItems": 2, "maxItems": 4},
            "where": {"$ref": "#/$defs/Where"},
            "either": {"anyOf": [{"const": 3}, {"type": "string"}]},
            "both": {"allOf": [{"type": "string"}, {"minLength": 2}]},
            "zone": {
                "type": "string",
                "description": "a zone (e.g., 'Europe/Oslo')",
                "pattern": "^Europe/Oslo$",
            },
        },
        "required": ["n", "x", "text", "many", "where", "either", "both", "zone"],
        "additionalProperties": False,
    }
    random = Random(seed)
    check = jsonschema_rs.validator_for(schema)
    for _ in range(20):
        arguments = draw_arguments(schema, random)
        assert check.is_valid(arguments), arguments


def test_calls_come_from_a_log(tmp_path: Path) -> None:
    def search(q: str) -> str:
        return q

    log = tmp_path / "log.jsonl"
    call = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"q": "tofa"}'}}
    other = {"id": "2", "type": "function", "function": {"name": "browse", "arguments": "{}"}}
    rows = [{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call, call, other]},
                          {"role": "tool", "tool_call_id": "1", "content": "a"}]}] * 3  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mix = trace_mix(log, [tool(search)])
    assert (mix.names, len(mix.calls), mix.calls_per_rollout) == (["search"], 6, 2.0)
    assert mix.calls[0] == ("search", {"q": "tofa"})
    with pytest.raises(ToolError, match="has no call of work"):
        trace_mix(log, server(1, 0).tools)


def test_chaos_is_seeded_and_keeps_its_rates() -> None:
    chaos, again = (Chaos({"error": 0.3, "stale": 0.2}, seed=4) for _ in range(2))
    faults = [chaos.fault("a") for _ in range(4000)]
    assert faults == [again.fault("a") for _ in range(4000)]
    assert faults != [chaos.fault("b") for _ in range(4000)]
    assert faults.count("error") / 4000 == pytest.approx(0.3, abs=0.03)
    assert faults.count("stale") / 4000 == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("mode", MODES)
def test_each_fault_is_seen_for_what_it_is(mode: str) -> None:
    """Silent faults are caught by a check of the result, and by nothing else; the others have their blame."""
    numbers = iter(range(10**6))

    async def work() -> str:
        return f"row {next(numbers):06d} end"

    def check(_: Any, value: Any) -> str:
        whole = (
            len(value) == 14 and value.startswith("row ") and value.endswith(" end") and value[4:10].isdigit()
        )
        fresh = whole and int(value[4:10]) not in seen
        seen.add(int(value[4:10]) if whole else -1)
        return "" if whole and fresh else "spoiled"

    async def calls(checked: bool) -> list[Any]:
        chaos = Chaos({mode: 1.0}, seed=1, latency_s=0.001)
        one = tool(work, timeout_s=0.02 if mode == "hang" else 5.0, check_result=check if checked else None)
        executor = Executor([with_chaos(one, chaos)], options=RAW)
        return [(await executor.call("work")).call for _ in range(2)]

    seen: set[int] = set()
    checked = anyio.run(calls, True)[1:]
    blames = {(call.blame, call.kind) for call in checked}
    expected = {"latency": ("", ""), "hang": ("tool", "timeout"), "error": ("infrastructure", "server_error"),
                "unavailable": ("infrastructure", "unavailable"), "dropped": ("infrastructure", "dropped")}  # fmt: skip
    assert blames == {expected.get(mode, ("infrastructure", "corrupt"))}
    if mode in SILENT:
        assert not any(call.error for call in anyio.run(calls, False))


@pytest.mark.parametrize(("text", "message"), [("fire=1", "no chaos mode fire"), ("error=2", "between 0 and 1"), ("a", "is not MODE=RATE"),
                                               ("error=0.7,hang=0.7", "add up to 1.4")])  # fmt: skip
def test_bad_chaos_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        Chaos(parse_rates(text))


MODULE = """
import time

def add(a: int, b: int) -> int:
    return a + b

def broken() -> None:
    raise ConnectionRefusedError("nobody there")

def never(n: int) -> None:
    raise ValueError("wrong shape")
"""


@pytest.fixture
def tools_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools_under_stress.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


QUICK = ("--seconds", "0.3", "--max-concurrency", "2")


@pytest.mark.usefixtures("tools_module")
def test_the_command_on_functions(tmp_path: Path) -> None:
    done = cli(
        "stress",
        "tools",
        "tools_under_stress:add",
        *QUICK,
        "--json",
        "--error-rate",
        "0",
        "--rate",
        "100",
        "--html",
        tmp_path / "s.html",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["verdict"], result["holds_concurrency"], result["exit_code"]) == ("held", 2, 0)
    assert [point["concurrency"] for point in result["points"]] == [1, 2]
    assert result["open_loop"]["p999_s"] >= result["open_loop"]["p50_s"] > 0
    assert "Objective held" in (tmp_path / "s.html").read_text()
    missed = cli("stress", "tools", "tools_under_stress:add", *QUICK, "--p99", "1e-9")
    assert missed.returncode == 1
    assert missed.stdout.startswith(
        "MISSED  tools_under_stress:add\nMissed: p99 within 1e-06 ms with 1 caller; it does not hold"
    )


@pytest.mark.usefixtures("tools_module")
def test_the_command_injects_chaos_and_says_what_passed() -> None:
    done = cli(
        "stress", "tools", "tools_under_stress:add", *QUICK, "--chaos", "stale=0.5,error=0.2", "--seed", "3"
    )
    assert done.returncode == 0, done.stderr
    assert "infrastructure/server_error" in done.stdout
    assert "looked like an answer" in done.stdout


@pytest.mark.usefixtures("tools_module")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tools_under_stress:broken",), "the target does not answer: broken: connection"),
        (("tools_under_stress:never",), "no call was answered, as never with"),
        (("tools_under_stress:add", "--tool", "sub"), "the target has no tool sub; it has add"),
        (("tools_under_stress:add", "--rate", "0"), "--rate 0 is not"),
        (("tools_under_stress:add", "--chaos", "x"), "--chaos 'x' is not"),
        (("tools_under_stress:add", "--trace", "nowhere.jsonl"), "nowhere.jsonl"),
        (("no_such_module:add",), "cannot be imported"),
        (("no-such-command",), "is not a command"),
        (("http://127.0.0.1:9/tool",), "the target does not answer"),
        (("http://example.com/mcp",), "not on loopback"),
    ],
)
def test_bad_targets_are_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = cli("stress", "tools", *arguments, *QUICK)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_only_tools_that_read_are_called_unasked(tmp_path: Path) -> None:
    async def main() -> tuple[list[str], list[str]]:
        from trimtab.tools.targets import McpServer

        async with Executor(sources=[McpServer(mcp_script(tmp_path))]) as executor:
            return generated_mix(executor.tools).names, generated_mix(executor.tools, names=["fail"]).names

    assert anyio.run(main) == (["double", "die_once"], ["fail"])
