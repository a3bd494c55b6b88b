"""A rise of one part of the reward counts as a proxy's only while the others never paid."""

from __future__ import annotations

import pytest

from trimtab.detect.derived_readings import ProxyRise


def rises(tests: list[float]) -> list[float]:
    proxy = ProxyRise()
    return [proxy.update({"judge": 0.2 + 0.02 * step, "tests": value}) for step, value in enumerate(tests)]


def test_the_rise_is_the_last_five_steps_over_the_first_five() -> None:
    assert rises([0.004 * (step % 2) for step in range(20)])[-1] == pytest.approx(0.3)


def test_a_part_that_once_paid_is_not_idle_after_it_has_fallen() -> None:
    assert rises([0.5] * 6 + [0.0] * 20)[-1] == 0.0


def test_a_part_that_was_never_earned_is_not_idle() -> None:
    assert rises([0.0] * 20)[-1] == 0.0
