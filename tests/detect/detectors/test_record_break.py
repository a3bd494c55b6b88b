"""RecordBreak: a level the run never had; its own record as the bar; state over a resume."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimtab.detect.detectors.record_break import RecordBreak

LOW, HIGH = math.log(0.1), math.log(0.8)


def fires(values, **options):
    detector = RecordBreak(HIGH, 0.4, **options)
    return [step for step, value in enumerate(values) if detector.update(step, value).fired]


def test_it_fires_when_the_mean_of_three_passes_the_level_and_the_record() -> None:
    calm = [LOW] * 30
    assert fires([*calm, *[math.log(2.0)] * 5]) == [32]
    assert fires([*calm, math.log(2.0), *calm]) == []  # one wild step
    assert fires([*calm, *[math.log(0.5)] * 20]) == []  # a record of no consequence


def test_a_run_that_was_as_far_before_is_not_told() -> None:
    wild = [math.log(2.0)] * 3
    assert fires([LOW, *wild, *[LOW] * 20, *wild]) == []
    assert fires([math.log(2.0)] * 40) == []  # sick from the start: a record cannot see it


def test_the_record_is_forgotten_after_its_memory() -> None:
    values = [math.log(2.0)] * 12 + [LOW] * 60 + [math.log(2.0)] * 5
    assert fires(values) == []
    assert fires(values, memory=40) == [74]


def test_downwards_it_mirrors() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(LOW, 0.2, 80)
    values[60:] = math.log(3.0)
    down = RecordBreak(-HIGH, 0.4, sign=-1)
    mirrored = [down.update(step, -value) for step, value in enumerate(values.tolist())]
    assert [step for step, one in enumerate(mirrored) if one.fired] == fires(values)
    assert next(one.bound for one in mirrored if one.fired) == pytest.approx(-HIGH)


def test_standard_errors_delay_it() -> None:
    values = [LOW] * 20 + [math.log(1.0)] * 5
    sure = RecordBreak(HIGH, 0.4, errors=1.645)
    unsure = RecordBreak(HIGH, 0.4, errors=1.645)
    assert any(sure.update(step, value, 0.05).fired for step, value in enumerate(values))
    assert not any(unsure.update(step, value, 0.5).fired for step, value in enumerate(values))


def test_it_clears_half_of_the_way_back_and_keeps_the_old_record() -> None:
    detector = RecordBreak(HIGH, 0.4)
    values = [LOW] * 20 + [math.log(2.0)] * 6 + [LOW] * 6
    decisions = [detector.update(step, value) for step, value in enumerate(values)]
    fired, cleared = (
        [i for i, one in enumerate(decisions) if getattr(one, name)] for name in ("fired", "cleared")
    )
    assert (fired, cleared) == ([22], [28])
    assert decisions[24].active
    assert decisions[22].since == 20
    assert detector.record == pytest.approx(LOW)


def test_values_that_are_not_finite_are_counted_and_a_resume_goes_on() -> None:
    values = [LOW, math.nan] * 15 + [math.inf] + [math.log(2.0)] * 5
    whole, first = RecordBreak(HIGH, 0.4), RecordBreak(HIGH, 0.4)
    expected = [whole.update(step, value) for step, value in enumerate(values)]
    for step, value in enumerate(values[:20]):
        first.update(step, value)
    second = RecordBreak(HIGH, 0.4)
    second.restore(first.state())
    resumed = [second.update(step, value) for step, value in enumerate(values[20:], 20)]
    assert list(map(repr, resumed)) == list(map(repr, expected[20:]))
    assert whole.num_skipped == second.num_skipped == 16
    assert any(one.fired for one in resumed)
