"""A fall from the best is found after any learning curve, and evaluations without one stay quiet."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.detect.detectors.drawdown import Drawdown


def fired(x, **options):
    detector = Drawdown(**{"sign": -1, "arl": 5000.0, "min_frac": 0.05, **options})
    return [t for t, value in enumerate(x) if detector.update(t, value).fired], detector


def curve(seed, n=100, tau=10.0, noise=0.01):
    return 0.3 + 0.4 * (1 - np.exp(-np.arange(n) / tau)) + noise * np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize("tau", [2.0, 10.0, 40.0])
def test_a_fall_after_learning_is_found_within_three_evaluations(tau):
    """What a change against the run's own past cannot see: the rise is part of that past."""
    for seed in range(20):
        x = curve(seed, tau=tau) - 0.2 * (np.arange(100) >= 60)
        assert 60 <= fired(x)[0][0] <= 63


def test_a_loss_that_turns_is_found_with_the_other_sign():
    t = np.arange(80)
    x = np.where(t < 40, 2.1 - 0.03 * t, 0.9 + 0.03 * (t - 40)) + 0.02 * np.random.default_rng(0).normal(
        size=80
    )
    steps, _ = fired(x, sign=1, min_frac=0.02)
    assert 40 < steps[0] < 55


def test_false_alarms_of_independent_evaluations_are_as_stated():
    """100 series of 300 evaluations at one in 1,000: fewer than 30 alarms; a learning curve adds none."""
    count = sum(len(fired(curve(seed, n=300, noise=0.05), arl=1000.0)[0]) for seed in range(100))
    assert count <= 30


def test_the_smallest_distance_is_kept_in_the_values_unit():
    gap = [0.02 * t for t in range(40)]  # a gap that widens slowly from nothing
    small, large = (
        Drawdown(sign=1, min_effect=least, arl=1e3).scan(np.arange(40), np.array(gap)) for least in (0.1, 5.0)
    )
    assert [i for i, d in small if d.fired] == [9]
    assert large == []


def test_edges():
    assert fired([])[0] == fired([0.5] * 50)[0] == fired([0.5, 0.1])[0] == []
    steps, detector = fired([np.nan, np.inf] * 5 + [0.7] * 30 + [0.1] * 5)
    assert steps == [10 + 30 + 2]
    assert detector.num_skipped == 10
