"""Phases of a step, memory and episode times: what is recorded, from real clocks and from files of control groups."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import numpy as np
import pytest

from trimtab.capture.clean_values import Door
from trimtab.capture.memory_use import host_memory, memory_of, read_memory
from trimtab.capture.phase_clock import MAX_PHASES, PhaseClock, phases_of
from trimtab.capture.step_costs import StepCosts, episodes_of


def test_nested_and_repeated_phases_add_up_to_the_wall_time() -> None:
    clock = PhaseClock()
    start = time.perf_counter()
    with clock.phase("rollout"):
        time.sleep(0.02)
        for _ in range(3):
            with clock.phase("tools"), clock.phase("tools"):
                time.sleep(0.01)
        time.sleep(0.02)
    wall = time.perf_counter() - start
    seconds = clock.take()["phases_s"]
    assert sum(seconds.values()) == pytest.approx(wall, abs=0.005)
    assert seconds["tools"] >= 0.03
    assert 0.04 <= seconds["rollout"] <= wall - 0.03 + 1e-6
    assert clock.take() == {}


def test_a_phase_that_raises_is_counted_and_raises_on() -> None:
    clock = PhaseClock()
    with pytest.raises(KeyError), clock.phase("reward"):
        raise KeyError("x")
    with clock.phase("forward"):
        pass
    assert set(clock.take()["phases_s"]) == {"reward", "forward"}


def test_asynchronous_phases_inside_one_do_not_count_the_outer_one() -> None:
    clock = PhaseClock()

    async def tool(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with clock.phase("tools"):
            await asyncio.sleep(0.15)

    async def rollout() -> None:
        with clock.phase("rollout"):
            await asyncio.gather(tool(0.0), tool(0.05), tool(0.1))

    asyncio.run(rollout())
    seconds = clock.take()["phases_s"]
    assert seconds["tools"] >= 0.45  # three workers
    assert 0 <= seconds["rollout"] < 0.1


def test_threads_are_counted_each() -> None:
    clock = PhaseClock()

    def work() -> None:
        with clock.phase("rollout"):
            time.sleep(0.02)

    with clock.phase("main"):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(10)
    assert clock.take()["phases_s"]["rollout"] >= 0.06


def test_names_of_any_kind_are_stored_and_too_many_go_to_other() -> None:
    clock = PhaseClock()
    for name in ("a" * 500, None, ["x"], "\ud800"):
        clock.add(name, 1.0)
    assert sum(clock.take()["phases_s"].values()) == 4.0
    for i in range(MAX_PHASES + 5):
        clock.add(f"p{i}", 1.0)
    seconds = clock.take()["phases_s"]
    assert seconds["other"] == 5.0
    assert len(seconds) == MAX_PHASES + 1


def test_waits_are_named_in_the_row_and_old_rows_have_none() -> None:
    clock = PhaseClock()
    with clock.phase("barrier", waits=True):
        pass
    assert phases_of(clock.take())[1] == {"sync", "barrier"}
    assert phases_of({}) == ({}, {"sync"})
    assert phases_of({"phases_s": [1], "waits": 3}) == ({}, {"sync"})
    assert phases_of({"phases_s": {"a": -1, "b": True, "c": 2}})[0] == {"c": 2.0}


def _tree(root, version: int):
    proc, groups = root / "proc", root / "cgroup"
    own = proc / "self"
    own.mkdir(parents=True)
    (own / "status").write_text("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
    inner = groups / ("job/one" if version == 2 else "memory/job/one")
    inner.mkdir(parents=True)
    (own / "cgroup").write_text("0::/job/one\n" if version == 2 else "7:cpu,memory:/job/one\n3:pids:/\n")
    names = (
        ("memory.max", "memory.current")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    prefix = "" if version == 2 else "total_"
    (inner / names[0]).write_text("max\n" if version == 2 else f"{2**63 - 4096}\n")
    (inner / names[1]).write_text("5\n")
    (inner.parent / names[0]).write_text("8000000\n")
    (inner.parent / names[1]).write_text("5000000\n")
    (inner.parent / "memory.stat").write_text(
        f"{prefix}inactive_file 1000000\n{prefix}active_file 500000\nanon 7\n"
    )
    return proc, groups


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_is_that_of_the_tightest_control_group(tmp_path, version) -> None:
    use = host_memory(*_tree(tmp_path, version))
    assert use == (1024 * 1024, 2048 * 1024, 8_000_000, 8_000_000 - (5_000_000 - 1_500_000))


def test_without_control_groups_the_machine_is_the_limit(tmp_path) -> None:
    proc, groups = _tree(tmp_path, 2)
    (proc / "self" / "cgroup").unlink()
    assert host_memory(proc, groups)[2:] == (1_000_000 * 1024, 900_000 * 1024)
    assert host_memory(tmp_path / "nowhere", groups) is None


def test_memory_of_this_process_grows_when_it_is_used() -> None:
    gc.collect()  # else a collection between the two readings gives back what other tests left
    before = memory_of({"memory": read_memory()})["host"]
    block = np.ones(400_000_000 // 8)
    after = memory_of({"memory": read_memory()})["host"]
    assert after.used - before.used > 300_000_000
    assert after.peak >= after.used
    assert 0 < after.available < after.limit
    assert block.sum() == 50_000_000


def test_malformed_memory_and_episodes_are_left_out() -> None:
    assert memory_of({"memory": {"host": [1, 2, "x", 4], "device": [1, 2, 3, -4]}}) == {}
    assert memory_of({"memory": 4}) == {}
    assert episodes_of({"episodes": {"num": 1}}) is None
    assert (
        episodes_of({"episodes": {"num": 1, "median_s": float("nan"), "longest_s": 1, "next_s": 0}}) is None
    )
    assert episodes_of({}) is None


def test_the_longest_episode_is_named() -> None:
    costs, door = StepCosts(), Door()
    arrays = {
        "episode_id": np.array([7, 8, 9]),
        "source": ["a", "b", "c"],
        "tools": [[], ["s", "s", "p"], []],
    }
    costs.add_episodes([1.0, 9.0, np.nan], arrays, np.ones(3, bool), door)
    costs.add_episodes([2.0, 99.0], {}, np.array([True, False]), door)  # the second was counted before
    row = costs.take()["episodes"]
    assert row == {
        "num": 3,
        "median_s": 2.0,
        "longest_s": 9.0,
        "next_s": 2.0,
        "episode": 8,
        "source": "b",
        "tools": "s x2, p",
    }
    assert door.changed["episode_s"] == 1
    assert "episodes" not in costs.take()


def test_tool_calls_stand_in_for_episodes_that_were_not_timed() -> None:
    row = StepCosts().take([(3, 2.0, "search"), (3, 4.0, "search"), (4, 1.0, "python"), (-1, 50.0, "x")])[
        "episodes"
    ]
    assert (row["num"], row["longest_s"], row["next_s"], row["episode"], row["tools"]) == (
        2,
        6.0,
        1.0,
        3,
        "search x2",
    )
