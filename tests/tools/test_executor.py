"""The executor over Python callables: limits, timeouts, retries, blame, cache, cancellation, records."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from trimtab.errors import ToolError
from trimtab.tools import Executor, ExecutorOptions, RetryOptions, ToolFailure, tool
from trimtab.tools.circuit_breaker import BreakerOptions
from trimtab.traces.core.tool_call import ToolCall

WAITING = 5000
FAST = RetryOptions(attempts=4, initial_s=0.001, jitter_s=0.001)


def run(main: Callable[[], Any]) -> Any:
    return anyio.run(main)


def one_call(
    function: Callable[..., Any], arguments: Any, options: ExecutorOptions | None = None, **fields: Any
) -> Any:
    async def main() -> Any:
        async with Executor([tool(function, **fields)], options=options) as executor:
            return await executor.call(function.__name__, arguments)

    return run(main)


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


def test_a_call_gives_value_text_and_record() -> None:
    result = one_call(add, {"a": 2, "b": 3})
    assert (result.value, result.text, result.ok) == (5, "5", True)
    assert (result.call.name, result.call.arguments, result.call.result_size) == ("add", {"a": 2, "b": 3}, 1)
    assert (result.call.blame, result.call.attempts, result.call.cached) == ("", 1, False)
    assert 0 <= result.call.latency_s < 1


def test_synchronous_functions_run_in_threads() -> None:
    names: list[str] = []

    def where() -> None:
        names.append(threading.current_thread().name)

    assert one_call(where, {}).ok
    assert names != [threading.current_thread().name]


def test_blame_of_each_kind() -> None:
    async def broken() -> None:
        raise ZeroDivisionError("division by zero")

    async def refusing() -> None:
        raise ToolFailure("policy", "refused", "no such table")

    async def unreachable() -> None:
        raise ConnectionResetError("gone")

    async def hanging() -> None:
        await anyio.sleep(60)

    async def main() -> list[tuple[str, str]]:
        tools = [tool(one, timeout_s=0.02) for one in (add, broken, refusing, unreachable, hanging)]
        async with Executor(tools) as executor:
            calls = [("nobody", {}), ("add", {"a": "x"}), ("add", {"a": 1, "c": 2}), ("add", "text"), ("refusing", {}),
                     ("broken", {}), ("hanging", {}), ("unreachable", {})]  # fmt: skip
            results = [await executor.call(*call) for call in calls]
            assert all(not one.ok and one.text.startswith("error: ") and one.value is None for one in results)
            assert executor.counts["unknown", "policy"] == 1
            return [(one.call.blame, one.call.kind) for one in results]

    assert run(main) == [
        ("policy", "unknown_tool"), ("policy", "bad_arguments"), ("policy", "bad_arguments"), ("policy", "bad_arguments"),
        ("policy", "refused"), ("tool", "error"), ("tool", "timeout"), ("infrastructure", "connection"),
    ]  # fmt: skip


def test_only_idempotent_tools_are_retried() -> None:
    def failing(times: int) -> Callable[..., Any]:
        asked = [0]

        async def flaky() -> int:
            asked[0] += 1
            if asked[0] <= times:
                raise ConnectionResetError("gone")
            return asked[0]

        return flaky

    options = ExecutorOptions(retry=FAST)
    again = one_call(failing(2), {}, options, idempotent=True)
    assert (again.value, again.call.attempts) == (3, 3)
    once = one_call(failing(1), {}, options)
    assert (once.call.blame, once.call.attempts) == ("infrastructure", 1)
    spent_all = one_call(failing(9), {}, options, idempotent=True)
    assert (spent_all.call.kind, spent_all.call.attempts) == ("connection", 4)


def test_errors_of_the_tool_itself_are_not_retried() -> None:
    asked = []

    async def wrong() -> None:
        asked.append(1)
        raise ValueError("no")

    assert one_call(wrong, {}, ExecutorOptions(retry=FAST), idempotent=True).call.blame == "tool"
    assert len(asked) == 1


def test_retry_after_is_waited_for() -> None:
    times: list[float] = []

    async def busy() -> str:
        times.append(time.monotonic())
        if len(times) == 1:
            raise ToolFailure("infrastructure", "rate_limited", "429", retry_after_s=0.3)
        return "ok"

    assert one_call(busy, {}, ExecutorOptions(retry=FAST), idempotent=True).ok
    assert times[1] - times[0] >= 0.3


@pytest.mark.parametrize("everything", [12, 16])
def test_limits_hold_exactly_with_5000_waiting_calls(everything: int) -> None:
    busy, peaks = {"a": 0, "b": 0}, {"a": 0, "b": 0, "all": 0}

    def make(name: str) -> Callable[..., Any]:
        async def work() -> None:
            busy[name] += 1
            peaks[name] = max(peaks[name], busy[name])
            peaks["all"] = max(peaks["all"], busy["a"] + busy["b"])
            await anyio.lowlevel.checkpoint()
            busy[name] -= 1

        return work

    async def main() -> Any:
        tools = [tool(make("a"), name="a", limit=7), tool(make("b"), name="b", limit=9)]
        executor = Executor(tools, options=ExecutorOptions(limit=everything))
        async with anyio.create_task_group() as group:
            for number in range(WAITING):
                group.start_soon(executor.call, "ab"[number % 2])
        return executor.counts

    counts = run(main)
    assert (peaks["a"], peaks["all"]) == (7, everything)
    assert peaks["b"] == min(everything - 5, 9) or everything == 12
    assert counts == {("a", ""): WAITING // 2, ("b", ""): WAITING // 2}


def test_a_limit_survives_cancelled_waiters() -> None:
    async def main() -> tuple[int, int]:
        async def work() -> None:
            await anyio.sleep(0.001)

        executor = Executor([tool(work, limit=3)])
        for _ in range(20):
            with anyio.move_on_after(0.004):
                async with anyio.create_task_group() as group:
                    for _ in range(50):
                        group.start_soon(executor.call, "work")
        limiter = executor._lanes["work"].limiters[0]
        assert (await executor.call("work")).ok
        return limiter.busy, limiter.waiting

    assert run(main) == (0, 0)


def test_cancellation_leaves_a_record_and_is_raised() -> None:
    calls: list[ToolCall] = []

    async def main() -> None:
        async def hang() -> None:
            await anyio.sleep(60)

        executor = Executor([tool(hang)], on_call=calls.append)
        with anyio.move_on_after(0.02) as scope:
            await executor.call("hang")
        assert scope.cancelled_caught

    run(main)
    assert [(one.error, one.kind, one.blame) for one in calls] == [("cancelled", "cancelled", "")]


def test_queue_time_is_kept_apart_from_latency() -> None:
    calls: list[ToolCall] = []

    async def main() -> None:
        async def work() -> None:
            await anyio.sleep(0.1)

        executor = Executor([tool(work, limit=1)], on_call=calls.append)
        async with anyio.create_task_group() as group:
            group.start_soon(executor.call, "work")
            group.start_soon(executor.call, "work")

    run(main)
    assert calls[0].queued_s == 0.0
    assert calls[1].queued_s >= 0.08
    assert calls[1].latency_s < calls[1].queued_s + 0.1


def test_long_results_are_cut_and_say_so() -> None:
    async def long() -> str:
        return "x" * 5000

    result = one_call(long, {}, max_result_chars=100)
    assert result.text == "x" * 100 + "\n[result cut: 100 of 5000 characters]"
    assert (result.call.result_size, len(result.value)) == (5000, 5000)


def test_a_cache_answers_equal_arguments_and_stays_bounded() -> None:
    asked: list[int] = []

    async def look(n: int) -> int:
        asked.append(n)
        return n

    async def main() -> list[bool]:
        executor = Executor([tool(look, idempotent=True, cache=True)], options=ExecutorOptions(cache_size=2))
        return [(await executor.call("look", {"n": n})).call.cached for n in (1, 1, 2, 3, 1)]

    assert run(main) == [False, True, False, False, False]
    assert asked == [1, 2, 3, 1]
    with pytest.raises(ToolError, match="idempotent"):
        tool(look, cache=True)


def test_failures_are_not_cached() -> None:
    asked: list[int] = []

    async def once() -> str:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("no")
        return "ok"

    async def main() -> list[bool]:
        executor = Executor([tool(once, idempotent=True, cache=True)])
        return [(await executor.call("once")).ok for _ in range(3)]

    assert run(main) == [False, True, True]


def test_an_unusable_result_is_the_infrastructures() -> None:
    async def half() -> str:
        return '{"rows": ['

    def problem(_: Any, value: str) -> str:
        return "" if value.endswith("}") else "cut short"

    call = one_call(half, {}, check_result=problem).call
    assert (call.blame, call.kind, call.error) == (
        "infrastructure",
        "corrupt",
        "corrupt: unusable result: cut short",
    )


def test_a_breaker_spares_a_dead_target_and_finds_it_again() -> None:
    asked: list[float] = []
    dead = [True]

    async def service() -> str:
        asked.append(time.monotonic())
        if dead[0]:
            raise ConnectionRefusedError("dead")
        return "ok"

    async def main() -> list[str]:
        options = ExecutorOptions(
            retry=RetryOptions(attempts=1, give_up_s=0.0), breaker=BreakerOptions(failures=5, cooldown_s=600)
        )
        executor = Executor([tool(service)], options=options)
        kinds = [(await executor.call("service")).call.kind for _ in range(40)]
        assert kinds == ["connection"] * 5 + ["circuit_open"] * 35
        assert len(asked) == 5
        dead[0] = False
        executor._lanes["service"].breaker._until = 0.0  # the ten minutes are over
        return [(await executor.call("service")).text for _ in range(2)]

    assert run(main) == ["ok", "ok"]


def test_calls_that_a_breaker_held_back_wait_for_it() -> None:
    asked: list[int] = []

    async def service() -> str:
        asked.append(1)
        if len(asked) <= 6:
            raise ConnectionRefusedError("dead")
        return "ok"

    async def main() -> Any:
        options = ExecutorOptions(retry=FAST, breaker=BreakerOptions(failures=3, cooldown_s=0.02))
        executor = Executor([tool(service)], options=options)
        first = [await executor.call("service") for _ in range(3)]
        assert [one.call.attempts for one in first] == [1, 1, 1]  # not idempotent: asked once
        return await executor.call("service")  # held back, then the trial fails, and it is not repeated

    result = run(main)
    assert (result.call.blame, result.call.attempts) == ("infrastructure", 1)


@pytest.mark.parametrize("schema", [{"type": 3}, {"$ref": "#/nowhere"}])
def test_a_malformed_schema_is_one_line(schema: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="tool add: its arguments' schema is malformed") as caught:
        Executor([tool(add, schema=schema)])
    assert "\n" not in str(caught.value)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolError, match="two tools are called add"):
        Executor([tool(add), tool(add)])


def test_memory_is_flat_over_many_calls() -> None:
    async def main() -> tuple[int, int]:
        executor = Executor([tool(add, adaptive=True)])

        async def many(count: int) -> int:
            for _ in range(count):
                await executor.call("add", {"a": 1})
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        await many(200)
        tracemalloc.start()
        try:
            return await many(2000), await many(6000)
        finally:
            tracemalloc.stop()

    before, after = run(main)
    assert after - before < 4096


def test_null_calls_cost_at_most_twice_the_limiter_with_fail_after() -> None:
    async def null() -> None:
        return None

    async def main() -> float:
        executor = Executor([tool(null, schema={"type": "object"})])
        limiter = anyio.CapacityLimiter(64)
        ratios = []
        for _ in range(3):
            start = time.process_time()
            for _ in range(2000):
                async with limiter:
                    with anyio.fail_after(5):
                        await null()
            middle = time.process_time()
            for _ in range(2000):
                await executor.call("null", {})
            ratios.append((time.process_time() - middle) / (middle - start))
        return sorted(ratios)[1]

    assert run(main) <= 2.0


def test_the_run_counts_what_the_executor_reports(tmp_path: Any) -> None:
    import trimtab
    from tests.support import make_batch
    from trimtab.runs import RunReader

    async def unreachable() -> None:
        raise ConnectionResetError("gone")

    import numpy as np

    with trimtab.open_run(tmp_path / "run", strict=True) as opened:
        executor = Executor([tool(unreachable), tool(add)], on_call=opened.tool_call)

        async def main() -> None:
            await executor.call("unreachable")
            await executor.call("add", {"a": 1})

        run(main)
        opened.observe(make_batch(np.random.default_rng(0)))
        opened.flush(0)
    rows = list(RunReader(tmp_path / "run").rows("tools"))
    assert [(row["name"], row.get("blame", ""), row.get("kind", "")) for row in rows] == [
        ("unreachable", "infrastructure", "connection"),
        ("add", "", ""),
    ]


def test_without_the_extra_there_is_one_line() -> None:
    code = (
        "import sys\nfor name in ('anyio', 'jsonschema_rs', 'tenacity', 'httpx2', 'mcp', 'hdrh'):\n    sys.modules[name] = None\n"
        "import trimtab, trimtab.tools\nfrom trimtab.errors import ToolError\n"
        "try:\n    trimtab.tools.Executor()\nexcept ToolError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "tools need anyio: pip install 'trimtab[tools]'\n", done.stderr
