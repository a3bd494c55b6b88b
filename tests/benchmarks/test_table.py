"""The bench's yardstick against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from benchmarks.peers.intervals import bootstrap, poisson_upper, share_interval
from benchmarks.peers.table import format_table, outcome, summarise, without


def found(step: int | None, severity: str = "warning", *families: str) -> dict[str, Any]:
    return {"rule": "r", "severity": severity, "step": step} | (
        {"families": list(families)} if families else {}
    )


def truth(name: str, onset: int | None = None, healthy: bool = False, n: int = 100) -> dict[str, Any]:
    return {"id": name, "healthy": healthy, "onset": onset, "steps": list(range(n)), "expected_family": "kl"}


def test_the_poisson_bound_is_garwoods() -> None:
    assert poisson_upper(0) == pytest.approx(-math.log(0.05))  # P(0 | mu) = exp(-mu) = 0.05
    mu = poisson_upper(1)  # P(at most 1 | mu) = exp(-mu) (1 + mu) = 0.05
    assert math.exp(-mu) * (1 + mu) == pytest.approx(0.05)
    assert poisson_upper(2) == pytest.approx(6.2958, abs=1e-4)  # Garwood's table


def test_the_share_interval_is_exact() -> None:
    assert share_interval(10, 10) == pytest.approx((0.025**0.1, 1.0))
    assert share_interval(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1))
    assert share_interval(0, 0) == (0.0, 1.0)


def test_every_alarm_of_a_healthy_log_is_false() -> None:
    got = outcome(
        {"findings": [found(3), found(None, "critical"), found(5, "info")]}, truth("a", healthy=True)
    )
    assert (got.alarms, got.high, got.notes, got.steps, got.detected) == (2, 1, 1, 100, False)


@pytest.mark.parametrize(
    ("steps", "detected", "early", "delay"),
    [
        ([], False, 0, None),
        ([49], False, 1, None),
        ([50], True, 0, 0),
        ([20, 70, 60], True, 1, 10),
        ([None], True, 0, None),
    ],
)
def test_an_alarm_detects_from_the_onset_on(
    steps: list[int | None], detected: bool, early: int, delay: int | None
) -> None:
    got = outcome({"findings": [found(step) for step in steps]}, truth("a", onset=50))
    assert (got.detected, got.alarms, got.delay, got.steps) == (detected, early, delay, 50)


def test_a_note_detects_nothing() -> None:
    assert not outcome({"findings": [found(60, "info")]}, truth("a", onset=50)).detected


def test_a_log_that_is_wrong_from_its_first_step_has_no_delay() -> None:
    got = outcome({"findings": [found(10)]}, truth("a"))
    assert (got.detected, got.delay, got.steps, got.alarms) == (True, None, 0, 0)


def test_a_system_that_stops_reading_before_the_onset_is_not_judged_on_it() -> None:
    got = outcome({"findings": [], "evaluated": 40}, truth("a", onset=50))
    assert (got.reached, got.steps) == (False, 40)
    assert outcome({"findings": [], "evaluated": 51}, truth("a", onset=50)).reached


def test_a_diagnosis_is_named_by_its_family() -> None:
    assert outcome({"findings": [found(60, "warning", "clip", "kl")]}, truth("a", onset=50)).named is True
    assert outcome({"findings": [found(60, "warning", "clip")]}, truth("a", onset=50)).named is False
    assert outcome({"findings": [found(60)]}, truth("a", onset=50)).named is None


def test_the_figures_of_a_system() -> None:
    truths = [
        truth("h0", healthy=True),
        truth("h1", healthy=True),
        *(truth(f"s{i}", onset=50) for i in range(4)),
    ]
    answers = [
        {"id": "h0", "findings": [found(1), found(2, "critical"), found(3)], "seconds": 0.25},
        {"id": "h1", "findings": [], "seconds": 0.25},
        {"id": "s0", "findings": [found(52)]},
        {"id": "s1", "findings": [found(54)]},
        {"id": "s2", "findings": [found(10), found(58, "critical")]},
        {"id": "s3", "findings": []},
    ]
    got = summarise(answers, truths)
    assert got["false"]["any_rate"] == pytest.approx(150.0)  # 3 in 200 steps
    assert got["false"]["high_rate"] == pytest.approx(50.0)
    assert got["false"]["any_upper"] == pytest.approx(50 * 7.7537, rel=1e-4)
    assert got["false"]["logs_with_alarm"] == 1
    assert got["false"]["any_bootstrap"] == pytest.approx((0.0, 300.0))  # one log of two has all
    assert (got["early"]["any"], got["early"]["steps"]) == (1, 200)
    assert (got["detected"], got["pathological"], got["delays"]) == (3, 4, 3)
    assert got["delay"] == (4.0, 3.0, 6.0)  # of 2, 4, 8
    assert got["seconds_per_1000_steps"] == pytest.approx(2.5)
    assert "3/4" in format_table({"x": got})


def test_what_failed_or_is_missing_counts_as_failure_only() -> None:
    got = summarise([{"id": "a", "error": "boom"}], [truth("a", onset=50), truth("b", healthy=True)])
    assert (got["failures"], got["pathological"], got["false"]["logs"]) == (2, 0, 0)
    assert got["false"]["any_rate"] is None
    assert "2 failures" in format_table({"x": got})


def test_the_bootstrap_finds_the_error_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(size=(400, 1))
    low, high = bootstrap(values, np.mean)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.1)
    assert all(math.isnan(bound) for bound in bootstrap([], np.mean))


def test_families_can_be_set_aside() -> None:
    answers = [{"id": "a", "findings": [found(1, "warning", "plateau"), found(2)]}, {"id": "b", "error": "x"}]
    assert without(answers, "plateau") == [{"id": "a", "findings": [found(2)]}, {"id": "b", "error": "x"}]
