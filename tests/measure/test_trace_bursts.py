"""Bursts of failures over time and under load: found when planted, and their rate of false alarms where nothing is wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.traces.test_table import episode
from trimtab.measure.traces.builder import Maker
from trimtab.measure.traces.episode_times import high_load, in_order, running_at_once
from trimtab.measure.traces.failure_bursts import bursts
from trimtab.measure.traces.permutation_test import permutation_p, worst_window
from trimtab.stats.array_kernels import dot
from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.table.build import tabulate


def _log(fails, tasks, times=None, seconds=None, groups=None):
    bad, good = Call(name="t", result="Error: x", error="Error: x"), Call(name="t", result="y")
    return [
        episode(
            bad if failed else good, id=f"e{i}", task=str(task), group=None if groups is None else str(groups[i]), time=None if times is None else float(times[i]),
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
    expected = np.mean([fails[(np.arange(200) % 50 == i % 50) & ~down].mean() for i in np.flatnonzero(down)])
    assert one.reading.value == pytest.approx(1 - expected)
    assert one.reading.slice == "tool/t"
    assert (
        "16 of 16 episodes that call it fail begun from 2023-11-14 23:33:20 to 2023-11-14 23:48:20 UTC, "
        f"{100 * expected:.0f} % of the same tasks at other times (p 0.002)" in one.text
    )
    assert {int(e.episode[1:]) for e in one.evidence} <= set(np.flatnonzero(down).tolist())


def test_without_times_the_order_of_the_log_is_used():
    fails = np.zeros(100, bool)
    fails[40:56] = True
    log = found(_log(fails, np.arange(100) % 25))
    assert log["traces/burst_excess"].reading.value == pytest.approx(2 / 3)  # windows of 12, 24, 48
    assert "16 of 24 episodes that call it fail from e32 to e55" in log["traces/burst_excess"].text
    assert log["traces/load_excess"].reading.reason == "not every episode has a time and a duration"
    assert in_order(tabulate(_log(fails, fails, np.arange(100)[::-1])))[0].tolist() == list(range(99, -1, -1))


@pytest.mark.parametrize("order", ["epochs", "shuffled epochs", "shuffled", "one task after the other"])
def test_an_outage_of_one_epoch_is_found_and_hard_tasks_are_none(order):
    """Tasks of very different difficulty, the hard ones side by side; then the same with 40 episodes in the middle down."""
    rng, healthy, down = np.random.default_rng(12), 0, 0
    for _ in range(20):
        epochs = np.tile(np.arange(40), 6)
        if order == "shuffled epochs":
            epochs = np.concatenate([rng.permutation(40) for _ in range(6)])
        tasks = rng.permutation(epochs) if order == "shuffled" else epochs
        chance = np.where(np.arange(40) < 8, 0.9, 0.05)
        if order.startswith("one"):
            tasks, chance = np.sort(tasks), rng.permutation(chance)
        fails = rng.random(240) < chance[tasks]
        healthy += found(_log(fails, tasks))["traces/burst_excess"].reading.value > 0
        fails[120:160] = True
        down += found(_log(fails, tasks))["traces/burst_excess"].reading.value > 0.2
    assert healthy <= 3  # 1 in 20 expected; 4 of 20 come by chance in 1 of 60 series
    assert down == 20 if order != "one task after the other" else down >= 15


def _busy(seed=2):
    """Two times of 60 episodes within 100 s, in a log that else has one at a time."""
    rng = np.random.default_rng(seed)
    times = np.sort(np.r_[np.arange(0, 4000, 40), 1000 + rng.random(60) * 100, 3000 + rng.random(60) * 100])
    crowd = ((times >= 1000) & (times <= 1100)) | ((times >= 3000) & (times <= 3100))
    return rng, times, crowd, np.full(times.size, 30.0)


def test_failures_under_load_are_found_outside_the_worst_burst_too():
    rng, times, crowd, seconds = _busy()
    fails = rng.random(times.size) < np.where(crowd, 0.6, 0.05)
    log = found(_log(fails, np.arange(times.size) % 55, times, seconds))
    assert log["traces/burst_excess"].reading.value > 0.2
    one = log["traces/load_excess"]
    assert one.reading.value == pytest.approx(0.55, abs=0.2)  # 60 episodes are left
    assert "fail outside the burst when more than" in one.text
    assert "run at once in their first 30 s" in one.text


def test_a_batch_that_starts_staggered_is_load():
    rng, size = np.random.default_rng(3), np.repeat(np.tile([8, 64], 10), np.tile([8, 64], 10))
    batch = np.repeat(np.arange(20), np.tile([8, 64], 10))
    times = batch * 120.0 + 0.02 * np.arange(batch.size)
    fails = rng.random(batch.size) < np.where(size == 64, 0.6, 0.03)
    one = found(_log(fails, np.arange(batch.size), times, np.full(batch.size, 60.0)))["traces/load_excess"]
    assert one.reading.value == pytest.approx(0.57, abs=0.05)
    assert "more than 8 run at once in their first 60 s" in one.text


def test_an_outage_whose_calls_hang_is_a_burst_and_no_load():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        times, down = np.cumsum(rng.exponential(10, 400)), np.arange(400) // 50 == 4
        fails = down | (rng.random(400) < 0.03)
        log = found(_log(fails, np.arange(400), times, rng.uniform(10, 20, 400) + 120 * fails))
        assert log["traces/burst_excess"].reading.value > 0.5
        assert log["traces/load_excess"].reading.value == 0


@pytest.mark.parametrize(("at_once", "seconds"), [(0.5, 0.5), (20.0, 150.0)])
@pytest.mark.parametrize("workers", [1, 8])
def test_failures_that_are_short_or_hang_are_no_load_by_that(at_once, seconds, workers):
    """A pool of workers takes the next episode when one ends: what fails at once is followed the sooner."""
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(40):
        fails, free, times, took = rng.random(200) < 0.25, np.zeros(workers), [], []
        for failed in fails:
            worker = int(free.argmin())
            times.append(free[worker])
            took.append(rng.uniform(at_once, seconds) if failed else rng.uniform(20, 60))
            free[worker] += took[-1] + rng.exponential(1)
        log = found(_log(fails, np.arange(200), np.array(times), np.array(took)))
        alarms += log["traces/load_excess"].reading.value > 0.2
    assert alarms <= 4


def test_running_at_once_against_a_count_of_pairs():
    """In hundredths of the first seconds of each: which others are open there?"""
    rng = np.random.default_rng(3)
    times, seconds = rng.integers(0, 50, 40).astype(float), rng.integers(2, 9, 40).astype(float)
    look = float(np.sort(seconds)[int(0.05 * 39)])
    moments = times[:, None] + (np.arange(100) + 0.5) * look / 100
    expected = (
        ((times <= moments[..., None]) & (moments[..., None] < times + seconds)).sum(axis=-1).mean(axis=1)
    )
    assert running_at_once(tabulate(_log(np.zeros(40), np.arange(40), times, seconds))) == pytest.approx(expected, abs=1e-3)  # fmt: skip
    seconds = rng.integers(0, 3, 40).astype(float)  # a twentieth takes no time: those open as it begins
    expected = [sum(times[j] <= t <= times[j] + seconds[j] for j in range(40)) for t in times]
    assert running_at_once(tabulate(_log(np.zeros(40), np.arange(40), times, seconds))).tolist() == expected


def test_the_split_of_loads_against_all_splits():
    rng = np.random.default_rng(8)
    for _ in range(20):
        load = np.r_[rng.normal(5, 1, 70), rng.normal(30, 4, 20)]
        cuts = np.sort(load)[7:-8]
        within = [
            load[load <= c].var() * (load <= c).sum() + load[load > c].var() * (load > c).sum() for c in cuts
        ]
        assert high_load(load) == cuts[int(np.argmin(within))]


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


def _p(fails, tasks, statistic):
    return np.mean([permutation_p(fails, tasks, statistic, np.random.default_rng(s)) for s in range(300)])


def test_tasks_that_lie_together_change_places_as_blocks():
    """Six tasks of two, failures of one task: of `the first two fail`, p is 1/6 by enumeration, where 1/66 would be without tasks."""
    fails, tasks = np.r_[1.0, 1, np.zeros(10)], np.repeat(np.arange(6), 2)
    orders = [np.concatenate([fails[2 * k : 2 * k + 2] for k in o]) for o in itertools.permutations(range(6))]
    exact = np.mean([o[:2].sum() >= 2 for o in orders])
    assert exact == pytest.approx(1 / 6)
    assert _p(fails, tasks, lambda x: x[:2].sum()) == pytest.approx(exact, abs=0.03)


def test_tasks_at_several_times_keep_their_failures():
    """Two tasks by turns, one of which always fails: nothing moves. A task that fails in its first three attempts of six: 1 of 20."""
    turns = np.tile([0, 1], 6)
    assert _p(turns * 1.0, turns, lambda x: x[1::2].sum()) == 1
    early = np.where(turns == 1, np.arange(12) < 6, 0.0)
    exact = np.mean([sum(o) <= 6 for o in itertools.combinations(range(1, 7), 3)])
    assert exact == pytest.approx(1 / 20)
    assert _p(early, turns, lambda x: x[:6].sum()) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("named", [True, False])
def test_attempts_side_by_side_stay_together(named):
    """Tasks come four times, four attempts together, and each time has a chance of its own: no burst. An outage of 48 is one."""
    rng, healthy, down = np.random.default_rng(6), 0, 0
    for _ in range(20):
        tasks = np.concatenate([np.repeat(rng.permutation(20), 4) for _ in range(4)])
        visit = np.arange(320) // 4
        fails = rng.random(320) < rng.beta(0.4, 1.2, 80)[visit]
        groups = visit if named else None
        healthy += found(_log(fails, tasks, groups=groups))["traces/burst_excess"].reading.value > 0
        fails[100:148] = True
        down += found(_log(fails, tasks, groups=groups))["traces/burst_excess"].reading.value > 0.2
    assert healthy <= 3  # of single attempts more than half would be
    assert down >= 19


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
    for log in ([Episode(id="e")], _log([1] * 5, range(5))):
        reading = found(log)["traces/burst_excess"].reading
        assert (reading.status, reading.n_tokens) == ("not observed", 0)


@pytest.mark.parametrize("worse", [False, True])
def test_a_policy_that_learns_or_forgets_steadily_has_no_burst(worse):
    rng, place, fired = np.random.default_rng(3), np.linspace(0, 1, 400), 0
    for _ in range(20):
        chance = 0.45 * np.exp(-4 * (1 - place if worse else place)) + 0.02
        log = found(_log(rng.random(400) < chance, np.tile(np.arange(50), 8), np.arange(400.0)))
        reading = log["traces/burst_excess"]
        fired += reading.reading.value > 0
    assert fired <= 1


@pytest.mark.parametrize(("first", "end"), [(0, 40), (180, 220), (360, 400)])
def test_an_outage_at_either_end_is_no_trend(first, end):
    rng = np.random.default_rng(4)
    for _ in range(10):
        fails = rng.random(400) < 0.05
        fails[first:end] |= rng.random(40) < 0.8
        assert (
            found(_log(fails, np.tile(np.arange(50), 8), np.arange(400.0)))[
                "traces/burst_excess"
            ].reading.value
            > 0.4
        )


def test_without_times_episodes_that_hang_and_so_end_last_of_their_batch_are_no_burst():
    rng, fired = np.random.default_rng(5), 0
    for _ in range(20):
        hangs = rng.random((10, 64)) < 0.1
        ended = np.argsort(hangs, axis=1, kind="stable")
        tasks = np.take_along_axis(np.tile(np.arange(64), (10, 1)), ended, axis=1)
        log = found(_log(np.take_along_axis(hangs, ended, axis=1).ravel(), tasks.ravel()))
        fired += log["traces/burst_excess"].reading.value > 0.2
    assert fired <= 1
