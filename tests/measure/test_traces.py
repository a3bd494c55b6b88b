"""Shares with clusters, and contrasts, against closed forms, independent computations and their own promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from tests.traces.test_table import episode
from trimtab.catalog import READINGS, TRACE_READINGS
from trimtab.detect.traces.rules import trace_findings
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.builder import Maker
from trimtab.measure.traces.contrasts import contrasts, difference, within_difference
from trimtab.measure.traces.outcomes import outcomes
from trimtab.measure.traces.run_all import trace_readings
from trimtab.measure.traces.tools import tool_readings
from trimtab.stats.intervals import effective_trials, quantile_places, share_interval
from trimtab.traces.core.episode import Call, Episode, Turn
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.table.build import tabulate
from trimtab.traces.table.types import Evidence


def readings(episodes, **declared):
    found = trace_readings(tabulate(episodes), ReadReport(), Requirements(**declared))
    return {(m.reading.key, m.reading.slice): m for m in found}


def test_wilson_against_scipy():
    for hits, n in ((0, 10), (3, 10), (10, 10), (500, 1000)):
        expected = scipy.stats.binomtest(hits, n).proportion_ci(method="wilson")
        assert share_interval(hits / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert all(math.isnan(v) for v in share_interval(0.5, 0))
    for n in (*range(1, 60), 8.3, 17.92):
        assert (share_interval(0.0, n)[0], share_interval(1.0, n)[1]) == (0.0, 1.0)  # not 4.3e-19


def test_the_interval_keeps_its_promise_where_calls_of_an_episode_are_alike():
    """95 % intervals of 400 logs with correlated calls hold the true share about that often; naive ones do not."""
    rng = np.random.default_rng(0)
    held, naive = 0, 0
    for _ in range(400):
        calls = rng.integers(1, 12, 80)
        failed = rng.binomial(calls, rng.beta(0.6, 1.4, 80))
        n, k = calls.sum(), failed.sum()
        trials = effective_trials(n, k, 80, failed @ failed, failed @ calls, calls @ calls)
        low, high = share_interval(k / n, trials)
        held += low <= 0.3 <= high
        low, high = share_interval(k / n, n)
        naive += low <= 0.3 <= high
    assert 0.92 <= held / 400 <= 0.98
    assert naive / 400 < 0.75


def test_every_key_is_in_the_catalog_and_every_trace_key_is_emitted():
    found = readings(
        [
            episode(Call(name="a", result="x"), id=str(i), task=str(i % 4), reward=float(i % 2), success=True)
            for i in range(8)
        ]
    )
    keys = {key for key, _ in found}
    assert keys <= {*READINGS, *TRACE_READINGS}
    assert set(TRACE_READINGS) <= keys


def test_shares_of_a_small_log():
    bad = Call(name="a", arguments=1, result="Error: no", error="Error: no")
    log = [
        episode(
            Call(name="a", arguments=1, result="x"), bad, id="0", task="t", reward=1.0, stop_reason="length"
        ),
        episode(Call(name="b"), id="1", task="t", reward=1.0, stop_reason="stop"),
        Episode(id="2", task="u", reward=0.0),
        episode(bad, id="3", task="u", reward=1.0),
    ]
    found = readings(log, required_tools=["b", "c"])
    expected = {
        ("tools/failure_frac", "tool/a"): 2 / 3, ("tools/failure_frac", "tool/b"): 0.0, ("traces/truncated_frac", "all"): 0.5,
        ("traces/no_call_frac", "all"): 0.25, ("traces/unanswered_frac", "all"): 0.25, ("traces/solved_frac", "all"): 0.75,
        ("aggregate/zero_std_frac", "all"): 0.5, ("traces/reward_std", "all"): 0.5, ("traces/neglected", "all"): 1.0,
        ("tools/share", "tool/a"): 0.75, ("tools/calls_per_episode", "tool/a"): 0.75,
    }  # fmt: skip
    assert {key: found[key].reading.value for key in expected} == pytest.approx(expected)
    assert found["traces/neglected", "all"].text == "c never called"
    unchecked = found["traces/schema_error_frac", "all"].reading
    assert (unchecked.status, unchecked.n_tokens) == ("not observed", 0)
    assert (
        found["traces/disagree_frac", "all"].reading.reason
        == "needs episodes with both a reward and a success"
    )
    assert [e.source for e in found["aggregate/zero_std_frac", "all"].evidence] == ["task t"]


def test_counts_in_words_have_separators():
    bad = Call(name="a", result="Error: HTTP 503", error="Error: HTTP 503")
    one = readings([episode(*[bad] * 40, id=str(i)) for i in range(50)])["tools/failure_frac", "tool/a"]
    assert one.text == "2,000 of 2,000 calls, in 50 episodes: 2,000 x HTTP 503 (2,000 by the tool), by text"


def test_a_tool_that_does_not_exist_has_no_share_of_failures():
    error = "Error: no tool named 'gogle' found"
    made_up = Call(name="gogle", result=error, error=error)
    found = readings([episode(made_up, Call(name="a", result="x"), id=str(i)) for i in range(30)])
    assert math.isnan(found["tools/failure_frac", "tool/gogle"].reading.value)
    assert found["tools/failure_frac", "tool/a"].reading.value == 0.0


def test_reward_against_success():
    pairs = [(1.0, True), (0.9, True), (0.0, True), (0.95, False), (0.2, False), (0.0, False), (None, True)]
    found = readings([Episode(id=str(i), reward=r, success=s) for i, (r, s) in enumerate(pairs)])
    one = found["traces/disagree_frac", "all"]
    assert one.reading.value == pytest.approx(
        2 / 6
    )  # solved at 0, and not solved at 0.95, the median of the solved being 0.9
    assert [e.episode for e in one.evidence] == ["2", "3"]


def test_a_tool_that_was_abandoned():
    def log(last):
        return [
            episode(
                *([Call(name="old", result="")] if i < last else []), Call(name="new", result=""), id=str(i)
            )
            for i in range(40)
        ]

    found = readings(log(19), required_tools=["old"])["traces/neglected", "all"]
    assert (
        found.text
        == "old abandoned: called in 19 of 20 episodes before, 0 of 20 episodes since episode 20 (p 0.002)"
    )
    assert (
        readings(log(30), required_tools=["old"])["traces/neglected", "all"].reading.value == 0
    )  # ten are too few


def test_difference_is_welch_where_every_task_is_one_episode():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(1, 2, 40), rng.normal(0, 1, 25)])
    a = np.arange(65) < 40
    gap, se, groups = difference(x, a, np.arange(65))
    population = math.sqrt(x[a].var() / 40 + x[~a].var() / 25)  # Welch's with 1/n variances
    assert (gap, groups) == (pytest.approx(x[a].mean() - x[~a].mean()), 65)
    assert se == pytest.approx(population * math.sqrt(65 / 64))


def test_within_difference_is_least_squares_with_a_column_a_task():
    rng = np.random.default_rng(2)
    tasks = rng.integers(0, 15, 120)
    a = rng.random(120) < 0.3 + 0.03 * tasks
    x = 2.0 * tasks + 0.7 * a + rng.normal(0, 1, 120)
    design = np.column_stack([a, tasks[:, None] == np.arange(15)]).astype(float)
    slope = np.linalg.lstsq(design, x, rcond=None)[0]
    found, se, mixed = within_difference(x, a, tasks)
    assert found == pytest.approx(slope[0])
    residual = x - design @ slope
    bread = np.linalg.pinv(design.T @ design)
    meat = sum(np.outer(s, s) for s in (design[tasks == t].T @ residual[tasks == t] for t in range(15)))
    assert se == pytest.approx(math.sqrt((bread @ meat @ bread)[0, 0] * mixed / (mixed - 1)), rel=1e-6)


def test_contrasts_ask_for_enough_and_drop_what_says_the_same_twice():
    def log(n):
        return tabulate(
            [
                episode(
                    *[Call(name="a", result=str(j)) for j in range(1 + i % 3)], id=str(i), reward=float(i % 2)
                )
                for i in range(n)
            ]
        )

    table = log(60)
    found = contrasts(table, table.reward == 0, table.reward == 1)
    assert [c.name for c in found] == [
        "tool calls"
    ]  # turns, tokens, ... do not vary; `calls a` is always yes
    assert found[0].n_a == found[0].n_b == 30
    small = log(18)
    assert contrasts(small, small.reward == 0, small.reward == 1) == []


def test_outcomes_by_stop_reason_tool_and_first_error():
    log = [
        episode(
            Call(name="a", result="Error: x 1", error="Error: x 1"),
            id=str(i),
            reward=float(i == 0),
            stop_reason="stop",
        )
        for i in range(3)
    ]
    log.append(Episode(id="3", reward=1.0))
    table = tabulate(log)
    rows = {(o.by, o.name): (o.episodes, round(o.solved, 3)) for o in outcomes(table, table.solved()[0])}
    assert rows == {
        ("stop reason", "stop"): (3, 0.333), ("stop reason", "(none given)"): (1, 1.0),
        ("tool called", "a"): (3, 0.333), ("tool called", "(no call)"): (1, 1.0),
        ("first error", "a: x #"): (3, 0.333), ("first error", "(no error)"): (1, 1.0),
        ("first visible symptom", "failed call"): (3, 0.333), ("first visible symptom", "(none)"): (1, 1.0),
        ("assistant turn of the first symptom", "1 or before"): (3, 0.333), ("assistant turn of the first symptom", "(none)"): (1, 1.0),
    }  # fmt: skip


def test_groups_are_the_log_s_or_a_task_s_in_one_step_not_the_task_over_all_steps():
    """Every group is constant and the value changes with the step: no gradient anywhere, though every task has two rewards."""

    def zero_std(**fields):
        log = [
            Episode(
                id=f"{step}/{task}/{i}",
                task=f"t{task}",
                reward=float((step + task) % 2),
                **{name: value(step, task) for name, value in fields.items()},
            )
            for step in range(2)
            for task in range(20)
            for i in range(4)
        ]
        return readings(log)["aggregate/zero_std_frac", "all"]

    plain = zero_std()
    assert (plain.reading.value, plain.reading.n_tokens, plain.text) == (
        0.0,
        20,
        "0 of 20 tasks with two rewards and more",
    )
    for found in (
        zero_std(group=lambda step, task: f"{step}/t{task}"),
        zero_std(step=lambda step, task: step),
    ):
        assert (found.reading.value, found.reading.n_tokens) == (1.0, 40)
        assert found.text == "40 of 40 groups with two rewards and more"
        assert (found.reading.low, found.reading.high) == pytest.approx(
            share_interval(1.0, 20)
        )  # the two groups of one task are no two independent ones
    assert zero_std(step=lambda step, task: step).evidence[0].source == "group t0 in step 0"


def test_groups_that_are_numbered_anew_in_each_step_are_not_one():
    """Groups 0 to 7 of 20 steps, each of four equal rewards that differ from step to step."""
    log = [
        Episode(id=f"{step}/{group}/{i}", group=str(group), step=step, reward=float((step * 3 + group) % 2))
        for step in range(20)
        for group in range(8)
        for i in range(4)
    ]
    one = readings(log)["aggregate/zero_std_frac", "all"]
    assert (one.reading.value, one.reading.n_tokens) == (1.0, 160)
    assert one.evidence[0].source == "task 0 in step 0"
    assert (one.reading.low, one.reading.high) == pytest.approx(share_interval(1.0, 160))


@pytest.mark.parametrize(("slow", "fires"), [(1, False), (3, False), (4, True)])
def test_a_tool_is_slow_by_more_than_a_few_calls_of_twenty(slow, fires):
    """The percentile interpolates to the slowest of twenty; that four of them are beyond it has a chance of 1.6 %."""
    assert scipy.stats.binom.sf(3, 20, 0.05) < 0.025 < scipy.stats.binom.sf(2, 20, 0.05)
    log = [episode(Call(name="a", result="x", latency_s=250.0 + i if i < slow else 0.5, step=3), id=str(i)) for i in range(20)]  # fmt: skip
    found = readings(log)
    one = found["tools/latency_p95_s", "tool/a"]
    assert one.reading.value > 10
    assert [e.episode for e in one.evidence[:slow]] == [str(i) for i in reversed(range(slow))]
    assert (one.evidence[0].step, one.evidence[0].text) == (3, f"{250 + slow - 1} s: a() -> x")
    assert ("tool_slow" in [f.rule.name for f in trace_findings(found.values())]) is fires
    assert f"surely {250 if fires else 0.5:g} s or more, median 0.5 s; 20 calls timed" in one.text


def test_the_ends_of_a_quantile_keep_their_promise():
    rng = np.random.default_rng(0)
    for n in (20, 73, 400):
        low, high = quantile_places(n, 0.95)
        count = scipy.stats.binom(n, 0.95)
        assert count.cdf(low) <= 0.025 < count.cdf(low + 1)
        values = np.sort(rng.exponential(size=(4_000, n)), axis=1)
        assert (values[:, low] <= -math.log(0.05)).mean() > 0.97
        if high is not None:
            assert count.sf(high) <= 0.025 < count.sf(high - 1)


@pytest.mark.parametrize("jitter", [0.0, 1e-9, 1e-5])
def test_rewards_that_are_equal_but_for_rounding_are_equal(jitter):
    log = [
        Episode(id=f"{t}/{i}", task=str(t), reward=0.1 + 0.2 + 0.01 * t + i * jitter) for t in range(12) for i in range(4)
    ]  # fmt: skip
    found = readings(log)
    assert found["aggregate/zero_std_frac", "all"].reading.value == (jitter < 1e-6)
    assert found["traces/reward_std", "all"].reading.value > 0.01
    same = readings(
        [Episode(id=str(i), task=str(i // 4), reward=(0.1 + 0.2, 0.3)[i % 2] * 1e6) for i in range(48)]
    )
    assert same["traces/reward_std", "all"].reading.value == 0
    assert "constant_reward" in [f.rule.name for f in trace_findings(same.values())]


@pytest.mark.parametrize(
    ("solved", "failed", "stray"),
    [
        (lambda i: 0.0, lambda i: -1.0, 0.0),
        (lambda i: -float(i % 7 + 2), lambda i: -50.0, -3.0),
        (lambda i: 10.0 + i % 3, lambda i: i % 5 - 6.0, 11.5),
        (lambda i: 1.0, lambda i: 0.0, 1.0),
    ],
)
def test_rewards_in_the_order_of_success_agree_with_it_whatever_their_sign(solved, failed, stray):
    log = [
        Episode(id=str(i), reward=(solved if i % 2 else failed)(i), success=bool(i % 2)) for i in range(60)
    ]
    assert readings(log)["traces/disagree_frac", "all"].reading.value == 0
    log[0].reward, log[1].reward = stray, failed(0)  # a loophole, and a broken check
    one = readings(log)["traces/disagree_frac", "all"]
    assert [e.episode for e in one.evidence] == ["0", "1"]


def test_attempts_at_one_prompt_are_the_groups_of_a_log_that_names_none():
    def log(prompts):
        said = [Turn(role="user", content=f"question {i % prompts}") for i in range(80)]
        return [
            Episode(id=f"e{i}", turns=[turn], reward=float(i % prompts < 5 and i >= 40))
            for i, turn in enumerate(said)
        ]

    found = readings(log(20))["aggregate/zero_std_frac", "all"]
    assert (found.reading.value, found.reading.n_tokens) == (0.75, 20)
    assert found.text == "15 of 20 prompts with two rewards and more, as the log names no task"
    assert found.evidence[0] == Evidence("", -1, "4 rewards of 0", "prompt of episode e5")
    alone = readings(log(80))["aggregate/zero_std_frac", "all"]
    assert (alone.reading.status, alone.reading.reason) == ("not observed", "no task has two rewards")


def _attempts(rng, tasks, attempts, alone):
    """A log whose tasks differ in how often tool a fails, 0.3 of its calls on the whole; `alone`, or beside a tool b that works."""
    rate = np.repeat(rng.beta(0.6, 1.4, tasks), attempts)
    bad, good = Call(name="a", result="Error: x", error="Error: x"), Call(name="a", result="y")
    others = [] if alone else [Call(name="b", result="y")] * 2
    return [
        episode(*[bad if x < p else good for x in rng.random(rng.integers(1, 5))], *others, id=str(i), task=str(i // attempts))
        for i, p in enumerate(rate)
    ]  # fmt: skip


@pytest.mark.parametrize("alone", [True, False])
def test_intervals_of_calls_keep_their_promise_where_attempts_at_one_task_are_alike(alone):
    rng = np.random.default_rng(4)
    held, naive, logs = 0, 0, 250
    for _ in range(logs):
        table = tabulate(_attempts(rng, 30, 8, alone))
        found = {m.reading.key: m.reading for m in tool_readings(Maker(table)) if m.reading.slice == "tool/a"}
        one = found["tools/failure_frac"]
        held += one.low <= 0.3 <= one.high
        row = table.tools["a"]
        trials = effective_trials(
            row.calls, row.failed, row.episodes, row.sum_ff, row.sum_fc, row.sum_cc
        )  # by episode
        low, high = share_interval(one.value, trials)
        naive += low <= 0.3 <= high
    assert 0.915 <= held / logs <= 0.985
    assert naive / logs < 0.75


def test_calls_of_ten_tasks_that_always_or_never_fail_are_worth_ten():
    """No alarm: the share of failing tasks, 4 of 10, reaches from 16 to 70 %, below the bound of 20 %."""
    bad, good = Call(name="a", result="Error: x", error="Error: x"), Call(name="a", result="y")
    found = readings(
        [episode(*[bad if i // 8 < 4 else good] * 3, id=str(i), task=str(i // 8)) for i in range(80)]
    )
    expected = share_interval(0.4, 9)  # ten tasks, less one
    for key in (("traces/failed_call_frac", "all"), ("tools/failure_frac", "tool/a")):
        assert (found[key].reading.low, found[key].reading.high) == pytest.approx(expected)
    assert not any("failing" in one.rule.name for one in trace_findings(list(found.values())))


def test_intervals_of_calls_are_by_episode_where_each_task_has_one():
    rng = np.random.default_rng(5)
    log = _attempts(rng, 60, 1, alone=False)
    calls = np.array([len(one.calls) for one in log])
    failed = np.array([sum(bool(call.error) for call in one.calls) for one in log])
    for named in (log, [Episode(id=one.id, turns=one.turns) for one in log]):
        found = readings(named)
        for key, c in (
            (("traces/failed_call_frac", "all"), calls),
            (("tools/failure_frac", "tool/a"), calls - 2),
        ):
            n, k = c.sum(), failed.sum()
            trials = effective_trials(n, k, 60, failed @ failed, failed @ c, c @ c)
            assert (found[key].reading.low, found[key].reading.high) == pytest.approx(
                share_interval(k / n, trials)
            )


def test_attempts_that_cancel_are_worth_no_more_than_themselves():
    """One of each task's two attempts fails: the tasks' shares are all the same, which a hundred episodes may be by chance."""
    bad, good = Call(name="a", result="Error: x", error="Error: x"), Call(name="a", result="y")
    found = readings(
        [episode(*[bad if i % 2 else good] * 3, id=str(i), task=str(i // 2)) for i in range(100)]
    )
    for key in (("traces/failed_call_frac", "all"), ("tools/failure_frac", "tool/a")):
        assert (found[key].reading.low, found[key].reading.high) == pytest.approx(share_interval(0.5, 99))
