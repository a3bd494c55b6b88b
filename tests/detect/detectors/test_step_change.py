"""A gross change between two handfuls of values is seen on any curve, and a curve alone is none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.pipeline import Pipeline
from trimtab.types import Reading, Window


def curve(shape: str, n: int) -> np.ndarray:
    t = np.arange(n) / n
    return {
        "flat": 0.5 + 0 * t,
        "line": 0.3 + 0.3 * t,
        "saturating": 0.15 + 0.55 * (1 - np.exp(-4 * t)),
        "sigmoid": 0.1 + 0.7 / (1 + np.exp(-12 * (t - 0.4))),
    }[shape]


def ar(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    e, x = rng.normal(size=n) * math.sqrt(1 - phi**2), np.zeros(n)
    x[0] = rng.normal()
    for i in range(1, n):
        x[i] = phi * x[i - 1] + e[i]
    return x


def fired(x: np.ndarray, **options) -> list[int]:
    return [
        i for i, d in StepChange(**{"sign": -1, "min_frac": 0.5, "arl": 3e5, **options}).scan(np.arange(x.size), x) if d.fired
    ]  # fmt: skip


@pytest.mark.parametrize("shape", ["flat", "line", "saturating", "sigmoid"])
def test_half_the_level_lost_in_one_step_is_told_within_seven_steps(shape):
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = curve(shape, 300) + 0.02 * ar(rng, 300, [0.0, 0.3, 0.6][seed % 3])
        found.append(fired(x * np.where(np.arange(300) >= 180, 0.4, 1.0)))
    assert all(len(steps) == 1 and 180 <= steps[0] <= 187 for steps in found), found


@pytest.mark.parametrize("shape", ["flat", "line", "saturating", "sigmoid"])
def test_curves_with_noise_and_memory_are_no_leaps(shape):
    """720,000 values at one in 1,000 a value, gross size left aside: a rate far above it would show."""
    count = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        x = curve(shape, 1_500) + 0.05 * ar(rng, 1_500, [0.0, 0.3, 0.6, 0.9][seed % 4])
        count += len(fired(x, min_frac=1e-9, arl=1e3))
    assert count <= 180, count


def test_the_size_counts_and_so_does_the_direction():
    x = curve("flat", 200) * np.where(np.arange(200) >= 100, 0.7, 1.0) + 1e-4 * np.sin(np.arange(200))
    assert fired(x) == []
    assert fired(x, min_frac=0.2) == [104]
    assert fired(x, min_frac=0.2, sign=1) == []
    assert fired(1.0 - x, min_effect=0.1, min_frac=0.0, sign=1) == [104]


def test_it_ends_when_the_level_is_back_or_is_the_series_own():
    x = np.full(400, 1.0) + 1e-3 * np.cos(np.arange(400))
    x[100:120] = 0.2
    assert [(i, d.fired) for i, d in StepChange(sign=-1, min_frac=0.5).scan(np.arange(400), x)] == [
        (104, True),
        (124, False),
    ]
    x[100:] = 0.2
    (_, first), (at, cleared) = StepChange(sign=-1, min_frac=0.5).scan(np.arange(400), x)
    assert (first.fitted, first.since, cleared.cleared) == (0.2, 103, True)
    assert at == 104 + 101  # a hundred values, and one more that confirms


def test_edges():
    assert fired(np.zeros(0)) == fired(np.zeros(300)) == fired(np.full(300, math.nan)) == []
    still = np.zeros(200)
    still[100:] = -1.0
    assert fired(still) == [], "half of nothing is nothing"
    stream = StepChange(sign=-1, min_frac=0.5)
    assert not any(stream.update(t, x).fired for t, x in enumerate(still.tolist()))
    constant = np.full(200, 0.5)
    constant[100:] = 0.1
    assert fired(constant) == [104]
    holed = np.repeat(constant, 2)
    holed[::2] = math.nan
    detector = StepChange(sign=-1, min_frac=0.5)
    assert [i for i, d in detector.scan(np.arange(400), holed) if d.fired] == [209]
    assert detector.num_skipped == 200
    with pytest.raises(ValueError, match="least size"):
        StepChange(sign=1)


def test_a_reward_that_breaks_after_learning_is_critical_and_kl_is_not_excused_by_it():
    """A slow rise of the reward before and after explains no step of the KL."""
    pipeline, rng = Pipeline(), np.random.default_rng(1)
    for step in range(140):
        reward = 0.2 + 0.3 * step / 100 + 0.02 * rng.normal()
        kl = 0.05 * math.exp(0.1 * rng.normal()) * (20 if step >= 80 else 1)
        found = (("aggregate/reward", reward * (0.3 if step >= 120 else 1.0)), ("aggregate/kl", kl))
        pipeline.on_readings(
            [Reading(key, step, Window(step, step), "all", value, 0, 0) for key, value in found]
        )
    told = {a.rule: (a.severity, a.step) for a in pipeline.alarms}
    assert told["kl_step"][0] == "warning"
    assert 80 <= told["kl_step"][1] <= 87
    assert told["reward_break"][0] == "critical"
    assert 120 <= told["reward_break"][1] <= 127
