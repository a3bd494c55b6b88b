"""Slow ranks are named, with their phase and since when; healthy ones never are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.straggler_jitter import PHASES, step_times

from trimtab.distributed.stragglers.noise_scale import long_run_scale
from trimtab.distributed.stragglers.perf_scores import (
    individual_scores,
    lower_median,
    relative_scores,
    slow_ranks,
)
from trimtab.distributed.stragglers.phase_excess import median_of_others
from trimtab.distributed.stragglers.straggler_judge import StragglerJudge


def _judge(steps, judge=None):
    """All sets of slow phases, one a step."""
    judge = judge or StragglerJudge()
    slow, named = [], []
    for step, times in enumerate(steps):
        answers = judge.update(step, times)
        slow = slow if answers is None else [one for one in answers if one.slow]
        named.append(slow)
    return named


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_median_of_others_is_the_median_without_the_rank(ranks) -> None:
    rng = np.random.default_rng(ranks)
    values = rng.normal(size=(ranks, 5))
    values[0, 2] = values[-1, 3] = np.nan
    values[:, 4] = np.nan
    medians = median_of_others(values)
    for r, p in np.ndindex(values.shape):
        others = np.delete(values[:, p], r)
        others = others[np.isfinite(others)]
        expected = np.median(others) if others.size and np.isfinite(values[r, p]) else np.nan
        assert medians[r, p] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_the_noise_is_the_long_run_one_whatever_spikes_and_shifts(phi) -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(4000, 3, 1)) * 0.1
    for t in range(1, 4000):
        noise[t] += phi * noise[t - 1]
    clean = long_run_scale(noise)
    assert clean == pytest.approx(np.full((3, 1), 0.1 / (1 - phi)), rel=0.12)
    noise[::50] += 3.0
    noise[2000:, 1] += 0.5
    assert long_run_scale(noise)[[0, 2]] == pytest.approx(clean[[0, 2]], rel=0.12)


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_slowed_by_a_fifth_is_named_with_its_rank_and_onset(phase) -> None:
    rng = np.random.default_rng(100 + PHASES.index(phase))
    named = _judge(step_times(rng, 280, 4, plant=(2, phase, 80, 1.2)))
    assert not any(named[:81])
    last = named[-1]
    assert [(one.rank, one.phase, one.basis) for one in last] == [(2, phase, "other ranks")]
    assert 60 <= last[0].since <= 130
    assert last[0].ratio == pytest.approx(1.2, abs=0.09)
    assert 0.003 < last[0].lost_frac < 0.15


def test_healthy_ranks_are_not_named_and_waits_never_are() -> None:
    named = _judge(step_times(np.random.default_rng(8), 400, 8))
    assert not any(named)


def test_a_declared_wait_of_one_rank_is_no_slow_phase() -> None:
    steps = step_times(np.random.default_rng(15), 120, 4)
    for times in steps:
        for rank in times:
            times[rank] = {"forward": times[rank]["forward"], "barrier": 2.0 + (rank == 1)}
    judge = StragglerJudge()
    answers = [judge.update(step, times, waits={"barrier"}) for step, times in enumerate(steps)]
    assert not [one for answer in answers for one in answer or () if one.slow]
    named = _judge(steps)[-1]
    assert [(one.rank, one.phase) for one in named] == [
        (1, "barrier")
    ]  # what it is where nobody says it waits


def test_a_rank_that_recovers_is_taken_back() -> None:
    slow = step_times(np.random.default_rng(1), 150, 4, plant=(1, "forward", 40, 1.4))
    named = _judge([*slow, *step_times(np.random.default_rng(2), 150, 4)])
    assert [one.rank for one in named[149]] == [1]
    assert not named[-1]


def test_ten_spikes_of_a_hundred_times_name_nobody() -> None:
    steps = step_times(np.random.default_rng(4), 300, 4)
    for step in range(30, 300, 27):
        steps[step][3]["backward"] *= 100
    assert not any(_judge(steps))


def test_of_two_ranks_the_slower_is_named_as_that() -> None:
    named = _judge(step_times(np.random.default_rng(5), 200, 2, plant=(0, "backward", 50, 1.25)))
    assert [(one.rank, one.basis) for one in named[-1]] == [(0, "the other rank")]


def test_one_rank_is_compared_with_its_own_past() -> None:
    calm = [{0: times[0]} for times in step_times(np.random.default_rng(6), 400, 1)]
    assert not any(_judge(calm))
    slow = [
        {0: times[0]} for times in step_times(np.random.default_rng(6), 400, 1, plant=(0, "tools", 200, 2.0))
    ]
    last = _judge(slow)[-1]
    assert [(one.phase, one.basis) for one in last] == [("tools", "its own past")]
    assert 195 <= last[0].since <= 215


def test_ranks_and_phases_that_come_late_or_stay_away_are_judged_by_what_they_gave() -> None:
    steps = step_times(np.random.default_rng(7), 300, 4, plant=(3, "forward", 0, 1.3))
    for step, times in enumerate(steps):
        if step < 100:
            del times[3]
        if step % 3 == 0:
            times.pop(0)
    named = _judge([{}, *steps])
    assert [(one.rank, one.phase) for one in named[-1]] == [(3, "forward")]
    assert 100 <= named[-1][0].since <= 125
    assert not any(named[:100])


def test_seconds_of_zero_and_phases_of_one_rank_name_nobody() -> None:
    steps = step_times(np.random.default_rng(9), 100, 4)
    for times in steps:
        times[1]["reward"] = 0.0
        times[2]["evaluation"] = 50.0
    assert not any(_judge(steps))


def test_scores_are_those_of_their_definition() -> None:
    ranks = {0: {"f": [1.0, 3.0]}, 1: {"f": [2.0, 2.0, 9.0]}, 2: {"f": [4.0]}}
    assert relative_scores(ranks)["f"] == {0: 1.0, 1: 0.5, 2: 0.25}  # medians 1 (the lower one), 2, 4
    assert slow_ranks(relative_scores(ranks)) == {"f": {1, 2}}
    assert math.isnan(relative_scores({0: {"f": [1.0]}, 1: {"g": [1.0]}})["f"][0])
    reports = individual_scores([{0: {"f": [2.0]}}, {0: {"f": [4.0]}}, {0: {"f": [1.0]}}, {0: {"f": [2.0]}}])
    assert [one["f"][0] for one in reports] == [1.0, 0.5, 1.0, 0.5]
    assert lower_median([5.0]) == 5.0
