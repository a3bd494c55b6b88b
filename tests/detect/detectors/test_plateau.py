"""A series that has stopped rising is told from one that rises, one that never moved, and one that is only noise."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.detect.detectors.plateau import Plateau


def curve(rng, n=600, rise=200, phi=0.5, noise=0.03):
    """Rises from 0 to 1 over `rise` steps, then stands still; AR(1) noise of deviation `noise`."""
    e = rng.normal(size=n) * noise * np.sqrt(1 - phi**2)
    for i in range(1, n):
        e[i] += phi * e[i - 1]
    return np.minimum(np.arange(n) / rise, 1.0) + e


def fired(x, **options):
    detector = Plateau(**options)
    return [t for t, value in enumerate(x) if detector.update(t, value).fired], detector


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_a_curve_that_levels_off_is_told_within_a_window_and_a_half(phi):
    for seed in range(20):
        steps, _ = fired(curve(np.random.default_rng(seed), phi=phi))
        assert len(steps) == 1
        assert 200 < steps[0] <= 200 + 192


def test_a_curve_that_still_rises_is_not():
    for seed in range(20):
        assert fired(curve(np.random.default_rng(seed), rise=600))[0] == []


def test_it_clears_when_the_rise_goes_on():
    rng = np.random.default_rng(0)
    x = np.concatenate([curve(rng, 400), 1.0 + np.arange(200) / 100 + 0.03 * rng.normal(size=200)])
    detector, events = Plateau(), []
    for t, value in enumerate(x):
        decision = detector.update(t, value)
        events += [("fired", t)] * decision.fired + [("cleared", t)] * decision.cleared
    assert [name for name, _ in events] == ["fired", "cleared"]
    assert 400 < events[1][1] < 560
    assert not detector.active


def test_edges():
    assert fired([])[0] == fired([1.0])[0] == fired([np.nan] * 300)[0] == []
    steps, detector = fired([np.nan, np.inf] * 10 + [0.5] * 300)
    assert steps == []  # nothing was ever gained: no gain to compare with
    assert detector.num_skipped == 20
