"""pass^k against all subsets, and the paired difference of outcomes against scipy's paired t test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from trimtab.detect.traces.multiple_testing import judge_contrasts
from trimtab.measure.traces.pass_at_k import MAX_K, outcome_contrast, pass_k
from trimtab.report.traces.compare import compare_lines, compare_tables
from trimtab.traces.core.episode import Episode
from trimtab.traces.table.build import tabulate


def log(outcomes):
    """`outcomes`: task -> the successes of its attempts."""
    return tabulate(
        [Episode(id=f"{t}/{i}", task=t, success=s) for t, row in outcomes.items() for i, s in enumerate(row)]
    )


def test_pass_k_is_the_mean_over_all_subsets_of_k_attempts():
    rng = np.random.default_rng(0)
    outcomes = {f"t{t}": (rng.random(5) < rng.random()).tolist() for t in range(12)}
    table = log(outcomes)
    found = pass_k(table, table.success)
    assert [row.k for row in found] == [1, 2, 3, 4, 5]
    for row in found:
        each = [np.mean([all(s) for s in itertools.combinations(o, row.k)]) for o in outcomes.values()]
        assert row.value == pytest.approx(np.mean(each), abs=1e-12)
        assert (row.tasks, row.left_out) == (12, 0)


def test_pass_k_leaves_tasks_of_fewer_attempts_out_and_counts_them():
    table = log({"a": [True, True, None], "b": [True, False], "c": [True]})
    found = pass_k(table, table.success)
    assert [(row.k, row.value, row.tasks, row.left_out) for row in found] == [
        (1, pytest.approx(2.5 / 3), 3, 0),
        (2, 0.5, 2, 1),
    ]
    assert pass_k(log({"a": [True], "b": [False]}), np.array([1, 0])) == []
    assert pass_k(log({}), np.zeros(0)) == []
    many = log({"a": [True] * 20})
    assert [row.value for row in pass_k(many, many.success)] == [1.0] * MAX_K


def test_pass_k_of_tau_bench_as_published():
    """gpt-4o with tool calling, airline, fifty tasks of four attempts: 0.420, 0.273, 0.220, 0.200 (sierra-research/tau-bench, README);
    `solved` counts the tasks by how many attempts of its published log have a reward of 1."""
    solved = {0: 14, 1: 12, 2: 10, 3: 4, 4: 10}
    table = log({f"{wins}/{i}": [j < wins for j in range(4)] for wins, n in solved.items() for i in range(n)})
    assert [round(row.value, 3) for row in pass_k(table, table.success)] == [0.420, 0.273, 0.220, 0.200]


def _both(seed, gain, tasks=50, each=2):
    rng = np.random.default_rng(seed)
    hard = rng.random(tasks)
    sides = [
        {f"t{t}": (rng.random(each) < np.clip(hard[t] + more, 0, 1)).tolist() for t in range(tasks)}
        for more in (gain, 0.0)
    ]
    return [log(side) for side in sides], sides


def test_the_outcome_is_paired_by_task_and_judged_on_its_own():
    (a, b), sides = _both(0, 0.18)
    found = compare_tables(a, b)
    means = [[np.mean(row) for row in side.values()] for side in sides]
    expected = scipy.stats.ttest_rel(*means)
    outcome = found["outcome"]
    assert (outcome["paired"], outcome["clusters"], found["verdict"]) == (True, 50, "different")
    assert outcome["p"] == pytest.approx(
        expected.pvalue / 0.8, rel=1e-6
    )  # four fifths of the level are the outcome's
    interval = expected.confidence_interval(1 - 0.8 * 0.05)
    assert (outcome["low"], outcome["high"]) == pytest.approx((interval.low, interval.high), rel=1e-6)
    assert "is solved" not in {row["name"] for row in found["contrasts"]}
    found |= {side: {"logs": [side], "episodes": 100, "malformed": 0} for side in ("a", "b")}
    lines = "\n".join(compare_lines(found))
    assert f"solved: A {100 * np.mean(means[0]):.1f} % (" in lines
    assert f"{100 * (np.mean(means[0]) - np.mean(means[1])):+.3g} points" in lines
    assert "the mean of the differences at the 50 tasks in both: different" in lines
    assert "pass^k" in lines


def test_the_outcome_keeps_its_level_where_nothing_differs():
    wrong = sum(compare_tables(*_both(seed, 0.0)[0])["outcome"]["real"] for seed in range(100))
    assert wrong <= 11  # 5 expected; 12 and more have a chance below 1 %


def test_numbers_are_printed_where_there_is_too_little_to_judge():
    a, b = log({"a": [True, False]}), log({"b": [True, True]})
    outcome = compare_tables(a, b)["outcome"]
    assert (outcome["mean_a"], outcome["mean_b"], outcome["difference"], outcome["p"]) == (
        0.5,
        1.0,
        -0.5,
        None,
    )
    assert compare_tables(log({"a": [None]}), b)["outcome"] == {}


def test_graded_rewards_stand_in_where_nothing_says_what_is_solved():
    rng = np.random.default_rng(1)
    rows = [
        [Episode(id=str(i), task=f"{s}{i}", reward=float(rng.normal(s, 1))) for i in range(40)]
        for s in (1, 0)
    ]
    a, b = map(tabulate, rows)
    outcome = compare_tables(a, b)["outcome"]
    expected = scipy.stats.ttest_ind(a.reward, b.reward, equal_var=False)
    assert (outcome["name"], outcome["paired"], outcome["real"]) == ("reward", False, True)
    assert outcome["difference"] == pytest.approx(a.reward.mean() - b.reward.mean())
    ends = expected.confidence_interval(1 - 0.8 * 0.05)
    assert (outcome["low"], outcome["high"]) == pytest.approx((ends.low, ends.high), abs=0.02)
    assert outcome["p"] < 1e-6
    both = np.arange(3) < 3
    assert outcome_contrast(tabulate(rows[0][:3]), both, np.full(3, math.nan), "reward", False) is None
    assert judge_contrasts([]) == []
