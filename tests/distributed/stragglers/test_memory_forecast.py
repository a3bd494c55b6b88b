"""Memory that runs out is forecast with an interval; sawteeth, warm-ups and full caches are not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.capture.memory_use import MemoryUse
from trimtab.capture.step_costs import EpisodeTimes
from trimtab.distributed.stragglers.episode_hold import EpisodeHold
from trimtab.distributed.stragglers.memory_forecast import MemoryForecast, theil_sen

LIMIT = 80 * 2**30


def _forecasts(used, others=0):
    forecast = MemoryForecast()
    own = np.asarray(used).astype(int).tolist()
    rest = np.broadcast_to(np.asarray(others), len(own)).astype(int).tolist()
    peak, answers = 0, []
    for step, (mine, more) in enumerate(zip(own, rest, strict=True)):
        peak = max(peak, mine)
        answer = forecast.update(step, MemoryUse(mine, peak, LIMIT, max(LIMIT - mine - more, 0)))
        if answer is not None:
            answers.append((step, answer))
    return answers


def _certain(answers):
    return [(step, one) for step, one in answers if math.isfinite(one.steps_left)]


def test_a_line_is_forecast_to_the_step() -> None:
    step, last = _forecasts(LIMIT * (0.3 + 0.004 * np.arange(120)))[-1]
    left = (LIMIT - LIMIT * (0.3 + 0.004 * step)) / (LIMIT * 0.004)
    assert (last.low, last.steps_left, last.high) == pytest.approx((left, left, left), rel=1e-6)
    assert last.bytes_per_step == pytest.approx(0.004 * LIMIT, rel=1e-6)


def test_growth_under_noise_lies_in_the_interval_in_nine_of_ten_forecasts() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(40):
        noise = 0.01 * rng.normal(size=100)
        for step, one in _certain(_forecasts(LIMIT * (0.3 + 0.004 * np.arange(100) + noise))):
            inside.append(one.low * 0.9 <= (0.7 - 0.004 * step) / 0.004 <= one.high * 1.1)
    assert len(inside) > 300
    assert np.mean(inside) > 0.9


@pytest.mark.parametrize("period", [5, 17, 40, 150])
def test_a_sawtooth_is_no_growth_once_it_has_been_as_high(period) -> None:
    t = np.arange(600)
    answers = _certain(_forecasts(LIMIT * (0.4 + 0.5 * (t % period) / period)))
    assert all(step <= period + 4 for step, _ in answers)


def test_memory_that_warms_up_and_levels_off_is_none() -> None:
    t = np.arange(400)
    answers = _forecasts(LIMIT * (0.2 + 0.5 * (1 - np.exp(-t / 12.0))))
    assert not [one for step, one in answers if one.steps_left < 50 and step > 40]
    assert not _certain(answers)[-1:] or _certain(answers)[-1][0] < 200


def test_memory_that_rose_and_stays_is_none() -> None:
    used = LIMIT * np.interp(np.arange(120), [20, 60], [0.3, 0.8])
    assert not [step for step, one in _forecasts(used) if step >= 76 and one.steps_left < 50]


def test_noise_about_a_level_runs_out_in_no_hundred_steps() -> None:
    rng = np.random.default_rng(1)
    answers = [_certain(_forecasts(LIMIT * (0.7 + 0.01 * rng.normal(size=400)))) for _ in range(8)]
    assert all(one.low > 100 for run in answers for _, one in run)


def test_where_a_limit_is_shared_all_use_counts_and_a_rank_that_does_not_grow_has_no_forecast() -> None:
    t = np.arange(100)
    both = _forecasts(LIMIT * (0.1 + 0.002 * t), others=LIMIT * (0.1 + 0.004 * t))
    step, last = both[-1]
    assert last.steps_left == pytest.approx((0.8 - 0.006 * step) / 0.006, rel=1e-6)
    assert not _certain(_forecasts(np.full(100, 0.1 * LIMIT), others=LIMIT * (0.1 + 0.006 * t)))


def test_slopes_against_every_pair() -> None:
    x = np.random.default_rng(2).normal(size=9)
    slopes = sorted((x[j] - x[i]) / (j - i) for i in range(9) for j in range(i + 1, 9))
    assert theil_sen(x)[0] == pytest.approx(np.median(slopes))
    assert theil_sen(x[:3])[1:] == (-math.inf, math.inf)


def _times(longest, after, rank_id=0):
    return EpisodeTimes(8, 2.0, longest, after, rank_id, "maths", "search x3")


def test_the_last_episode_holds_what_passes_after_the_last_but_one_of_all_ranks() -> None:
    hold = EpisodeHold()
    for _ in range(7):
        assert hold.update({0: _times(30.0, 4.0), 1: _times(10.0, 3.0)}, 40.0) is None
    answer = hold.update({0: _times(30.0, 4.0, 17), 1: _times(10.0, 3.0)}, 40.0)
    assert (answer.held_s, answer.held_frac, answer.rank) == (20.0, 0.5, 0)
    assert "episode 17 (maths; tools: search x3) on rank 0 took 30 s, the median 2 s" in answer.words


def test_one_slow_episode_in_eight_steps_is_chance() -> None:
    hold = EpisodeHold()
    answers = [hold.update({0: _times(500.0 if step == 5 else 5.0, 4.8)}, 20.0) for step in range(20)]
    assert all(one.held_frac < 0.02 for one in answers if one is not None)
    assert hold.update({0: EpisodeTimes(1, 2.0, 2.0, 0.0)}, 9.0) is None
