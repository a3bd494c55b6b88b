"""Bursts of failures over time and under load: found when planted, and their rate of false alarms where nothing is wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.traces.test_table import episode
from trimtab.measure.trace_bursts import bursts, in_order, permutation_p, running_at_once, worst_window
from trimtab.measure.trace_maker import Maker
from trimtab.stats.dot import dot
from trimtab.traces.episode import Call, Episode
from trimtab.traces.tabulate import tabulate


def _log(fails, tasks, times=None, seconds=None):
    bad, good = Call(name="t", result="Error: x", error="Error: x"), Call(name="t", result="y")
    return [
        episode(
            bad if failed else good, id=f"e{i}", task=str(task), time=None if times is None else float(times[i]),
            duration_s=None if seconds is None else float(seconds[i]),
        )
        for i, (failed, task) in enumerate(zip(fails, tasks, strict=True))
    ]  # fmt: skip


def found(log):
    return {m.reading.key: m for m in bursts(Maker(tabulate(log)))}


def test_the_rate_of_false_alarms_is_the_level_where_hard_tasks_run_side_by_side():
    """Tasks differ in how often they fail, four attempts at each run together, load waves: none of it is a burst."""
    rng = np.random.default_rng(7)
    alarms = naive = 0
    for _ in range(200):
        tasks = np.repeat(np.arange(40), 4)
        fails = rng.random(160) < np.repeat(rng.choice([0.02, 0.9], 40, p=[0.8, 0.2]), 4)
        seconds = 20 + 15 * np.sin(np.arange(160) / 9)
        log = found(_log(fails, tasks, 5.0 * np.arange(160), seconds))
        alarms += any(log[key].reading.value > 0 for key in ("traces/burst_excess", "traces/load_excess"))
        own = np.arange(160)
        naive += permutation_p(fails * 1.0, own, lambda x: worst_window(x)[0], rng) <= 0.05
    assert alarms / 200 <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 200)
    assert naive / 200 > 0.15  # what it would be without tasks


def test_an_outage_is_found_in_order_of_time_and_named():
    rng = np.random.default_rng(1)
    times = rng.permutation(200) * 60.0 + 1.7e9
    down = (times >= 1.7e9 + 80 * 60) & (times < 1.7e9 + 96 * 60)
    fails = (rng.random(200) < 0.05) | down
    one = found(_log(fails, np.arange(200) % 50, times))["traces/burst_excess"]
    outside = fails[~down].mean()
    assert one.reading.value == pytest.approx(1 - outside)
    assert one.reading.slice == "tool/t"
    assert (
        "16 of 16 episodes that call it fail begun from 2023-11-14 23:33:20 to 2023-11-14 23:48:20"
        in one.text
    )
    assert {int(e.episode[1:]) for e in one.evidence} <= set(np.flatnonzero(down).tolist())


def test_without_times_the_order_of_the_log_is_used():
    fails = np.zeros(100, bool)
    fails[40:56] = True
    log = found(_log(fails, np.arange(100) % 25))
    assert log["traces/burst_excess"].reading.value == 1.0
    assert "from e40 to e55" in log["traces/burst_excess"].text
    assert log["traces/load_excess"].reading.reason == "not every episode has a time and a duration"
    assert in_order(tabulate(_log(fails, fails, np.arange(100)[::-1])))[0].tolist() == list(range(99, -1, -1))


def test_failures_under_load_are_found():
    rng = np.random.default_rng(2)
    times = np.sort(np.r_[np.arange(0, 4000, 40), 1000 + rng.random(60) * 100, 3000 + rng.random(60) * 100])
    log = tabulate(_log(np.zeros(times.size), np.arange(times.size) % 55, times, np.full(times.size, 30.0)))
    fails = rng.random(times.size) < np.where(running_at_once(log) > 5, 0.6, 0.05)
    one = found(_log(fails, np.arange(times.size) % 55, times, np.full(times.size, 30.0)))[
        "traces/load_excess"
    ]
    busy = running_at_once(log) > np.median(running_at_once(log))
    assert one.reading.value == pytest.approx(fails[busy].mean() - fails[~busy].mean())
    assert one.reading.value > 0.3


def test_running_at_once_against_a_count_of_pairs():
    rng = np.random.default_rng(3)
    times, seconds = rng.integers(0, 50, 40).astype(float), rng.integers(0, 9, 40).astype(float)
    table = tabulate(_log(np.zeros(40), np.arange(40), times, seconds))
    expected = [sum(times[j] <= t <= times[j] + seconds[j] for j in range(40)) for t in times]
    assert running_at_once(table).tolist() == expected


def test_worst_window_against_brute_force():
    rng = np.random.default_rng(4)
    for _ in range(30):
        x = (rng.random(70) < 0.3) * 1.0
        p = x.mean()
        z = max(
            (x[i : i + w].sum() - w * p) / math.sqrt(w * p * (1 - p) * (1 - w / 70))
            for w in (8, 16, 32)
            for i in range(71 - w)
        )
        assert worst_window(x)[0] == pytest.approx(z)
    assert worst_window(np.zeros(50))[0] == worst_window(np.ones(50))[0] == -math.inf


def test_the_permutation_moves_whole_tasks_only():
    """Three tasks of two: six orders, of which one has the failures first; the p of `first two fail` is 1/3 by enumeration."""
    fails, tasks = np.array([1.0, 1, 0, 0, 0, 0]), np.array([0, 0, 1, 1, 2, 2])
    orders = [np.concatenate([fails[2 * k : 2 * k + 2] for k in o]) for o in itertools.permutations(range(3))]
    exact = np.mean([o[:2].sum() >= 2 for o in orders])
    p = np.mean(
        [permutation_p(fails, tasks, lambda x: x[:2].sum(), np.random.default_rng(s)) for s in range(300)]
    )
    assert exact == pytest.approx(1 / 3)
    assert p == pytest.approx(1 / 3, abs=0.05)  # stopped early, its mean is a little above


def test_neither_the_numbering_of_tasks_nor_the_order_of_tools_changes_what_is_found():
    """The engines number both in orders of their own; a tool's p is its own, whatever other tools there are."""
    rng = np.random.default_rng(11)
    n = 120
    tasks, times, seconds = rng.integers(0, 30, n), np.arange(n) * 5.0, rng.uniform(5, 40, n)
    fails = {tool: rng.random(n) < 0.3 for tool in ("t", "u", "v")}
    calls = {
        (tool, bad): Call(name=tool, result="Error: x" if bad else "y", error="Error: x" if bad else "")
        for tool in fails
        for bad in (False, True)
    }

    def told(tools, name):
        log = [
            episode(*[calls[tool, bool(fails[tool][i])] for tool in tools], id=f"e{i}", task=name(tasks[i]), time=times[i], duration_s=seconds[i])
            for i in range(n)
        ]  # fmt: skip
        table = tabulate(log)
        maker = Maker(table)
        _, maker.clusters = np.unique([name(task) for task in tasks], return_inverse=True)
        return {(m.reading.key, m.reading.slice): m.text for m in bursts(maker)}

    plain = told(["t", "u", "v"], lambda task: f"{task:02d}")
    assert len(plain) == 6
    assert all("chance: p" in text for text in plain.values())
    assert told(["v", "t", "u"], lambda task: f"{99 - task:02d}") == plain
    alone = told(["u"], lambda task: f"{task * 7 % 31:02d}")
    assert alone == {key: plain[key] for key in alone}
    own = np.arange(9)
    p = {
        permutation_p(
            np.array([1.0, 1, 0, 0, 1, 0, 1, 0, 0]),
            order,
            lambda x: dot(x, own * 1.0),
            np.random.default_rng(0),
        )
        for order in (own, own[::-1])
    }
    assert len(p) == 1


@pytest.mark.parametrize("fails", [np.zeros(60), np.ones(60)])
def test_no_failure_and_nothing_but_failures_are_no_burst(fails):
    log = found(_log(fails, np.arange(60) % 15, np.arange(60), np.arange(60) % 7))
    assert log["traces/burst_excess"].reading.value == log["traces/load_excess"].reading.value == 0


def test_nothing_to_judge():
    assert found([Episode(id="e")])["traces/burst_excess"].reading.status == "not observed"
    assert found(_log([1] * 5, range(5)))["traces/burst_excess"].reading.status == "not observed"
