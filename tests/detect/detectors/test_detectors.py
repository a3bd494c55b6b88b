"""Detectors are tested by their false-alarm rate under a null and their delay under a planted change."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.threshold import Threshold
from trimtab.detect.detectors.trend_break import TrendBreak
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.stream_checks import MissingColumn, Nonfinite
from trimtab.stats.student_t import t_quantile, t_tail

LOOKS, RUNS, ARL = (
    110,
    600,
    100.0,
)  # a budget of 100 windows, 100 judged looks a run: at most one false alarm a run

NULLS = {
    "normal": lambda rng: rng.normal(size=LOOKS),
    "heavy tails (t, 3 dof)": lambda rng: rng.standard_t(3, size=LOOKS),
    "autocorrelated (0.5)": lambda rng: _ar(rng, 0.5),
    "lognormal": lambda rng: np.exp(0.5 * rng.normal(size=LOOKS)),
    "constant": lambda rng: np.zeros(LOOKS),
}


def _ar(rng: np.random.Generator, phi: float) -> np.ndarray:
    noise, x = rng.normal(size=LOOKS), np.zeros(LOOKS)
    for i in range(LOOKS):
        x[i] = phi * x[i - 1] + noise[i] if i else noise[i] / math.sqrt(1 - phi**2)
    return x


def _alarms(make, series) -> int:
    detector = make()
    return sum(detector.update(i, float(v)).fired for i, v in enumerate(series))


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: PredictionLimit(arl=ARL),
        lambda: TrendBreak(arl=ARL, sign=1),
        lambda: TrendBreak(arl=ARL, sign=0),
    ],
    ids=["growth", "trend up", "trend either"],
)
def test_false_alarms_stay_within_the_budget(make, null):
    rng = np.random.default_rng(7)
    rate = np.mean([_alarms(make, NULLS[null](rng)) for _ in range(RUNS)]) / (LOOKS - 10)
    assert rate <= 1.0 / ARL, f"{rate:.4f} alarms a look, budget {1 / ARL}"


def test_a_linear_trend_is_the_null_of_the_trend_detector():
    rng = np.random.default_rng(3)
    series = [np.arange(LOOKS) * 0.1 + 0.3 * rng.normal(size=LOOKS) for _ in range(200)]
    assert np.mean([_alarms(lambda: TrendBreak(arl=ARL, sign=1), s) for s in series]) <= 1.0


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: PredictionLimit(), lambda t: 8.0),
        (lambda: PredictionLimit(sign=-1), lambda t: -8.0),
        (lambda: TrendBreak(sign=1), lambda t: 10.0),
        (lambda: TrendBreak(sign=-1), lambda t: -10.0),
        (lambda: PredictionLimit(), lambda t: 1.0 * t),
    ],
    ids=["growth up", "growth down", "break up", "break down", "slow growth"],
)
def test_delay_under_a_planted_change(make, change):
    delays = []
    for seed in range(50):
        rng, detector, at = np.random.default_rng(seed), make(), 40
        for i in range(100):
            value = rng.normal() + (change(i - at) if i >= at else 0.0)
            decision = detector.update(i, value)
            if decision.fired and i >= at:
                delays.append(i - at)
                assert decision.since >= at - 1
                break
    assert len(delays) >= 47, f"only {len(delays)} of 50 found"
    assert np.median(delays) <= 12


def test_a_nan_does_not_disable_the_detector():
    detector = PredictionLimit(arl=1000.0, baseline=4, confirm=2)
    fired = []
    for i, value in enumerate([0.0, 0.1, math.nan, -0.1, 0.0, math.inf, 9.0, math.nan, 9.0]):
        fired.append(detector.update(i, value).fired)
    assert fired == [False] * 8 + [True]
    assert detector.num_skipped == 3


def test_hysteresis_clears_only_well_below_the_bound():
    detector = PredictionLimit(arl=1000.0, baseline=4, confirm=2, min_effect=1.0)
    for i, value in enumerate([0.0, 0.01, -0.01, 0.0, 2.0, 2.0]):
        decision = detector.update(i, value)
    assert decision.fired
    assert decision.since == 4
    assert detector.update(6, 0.9).active
    assert detector.update(7, 0.2).active
    cleared = detector.update(8, 0.2)
    assert cleared.cleared
    assert not cleared.active


def test_measurement_error_widens_the_bound():
    calm = PredictionLimit(arl=1000.0, baseline=4, confirm=1)
    for i in range(4):
        calm.update(i, 0.0, se=1.0)
    assert not calm.update(4, 3.0, se=1.0).fired
    sure = PredictionLimit(arl=1000.0, baseline=4, confirm=1)
    for i in range(4):
        sure.update(i, 0.0, se=0.01)
    assert sure.update(4, 3.0, se=0.01).fired


@pytest.mark.parametrize("sign", [1, -1])
def test_a_known_bound_is_crossed_beyond_the_measurement_error(sign):
    """3.0902 is the normal quantile of 1/1000: so many standard errors beyond the limit, not before it."""
    for errors, fires in ((3.0, False), (3.2, True), (-3.2, False)):
        decision = Threshold(limit=0.3, sign=sign, confirm=1, arl=1000.0).update(
            0, 0.3 + sign * errors * 0.1, 0.1
        )
        assert decision.fired == fires
        assert decision.bound == pytest.approx(0.3 + sign * 0.30902, abs=1e-5)
    exact = Threshold(limit=0.3, sign=sign, confirm=1, arl=math.inf)
    assert exact.update(0, 0.3 + sign * 0.01, 0.1).fired  # the answer of a test is compared as it is


def test_the_bound_of_a_baseline_is_the_prediction_limit_of_one_more_value():
    """Mean + t s sqrt(1 + 1/n), with s from successive differences on 2 (n - 1) / 3 degrees of freedom."""
    baseline = np.random.default_rng(3).normal(size=7)
    detector = PredictionLimit(arl=1000.0, baseline=7, confirm=1)
    for step, value in enumerate(baseline):
        detector.update(step, float(value))
    s = math.sqrt((np.diff(baseline) ** 2).mean() / 2)
    expected = baseline.mean() + scipy.stats.t.isf(1 / 1000, 4) * s * math.sqrt(1 + 1 / 7)
    assert detector.update(7, 0.0).bound == pytest.approx(expected)


def test_the_bound_of_a_trend_is_the_prediction_limit_of_least_squares():
    x = np.arange(10.0)
    baseline = 2.0 + 0.3 * x + np.random.default_rng(4).normal(size=10)
    detector = TrendBreak(arl=1000.0, baseline=10, sign=1)
    for step, value in enumerate(baseline):
        detector.update(step, float(value))
    design = np.stack([np.ones(10), x], axis=1)
    weights, (residual,), *_ = np.linalg.lstsq(design, baseline, rcond=None)
    ahead = np.array([1.0, 10.0])
    spread = math.sqrt(residual / 8 * (1 + ahead @ np.linalg.inv(design.T @ design) @ ahead))
    expected = ahead @ weights + scipy.stats.t.isf(1 / 1000, 8) * spread
    assert detector.update(10, 0.0).bound == pytest.approx(expected)


@pytest.mark.parametrize("make", [PredictionLimit, TrendBreak])
def test_state_survives_a_resume(make):
    rng = np.random.default_rng(0)
    series = [float(v) for v in rng.normal(size=60)] + [30.0] * 5
    whole, first = make(), make()
    answers = [whole.update(i, v) for i, v in enumerate(series)]
    again = [first.update(i, v) for i, v in enumerate(series[:33])]
    second = make()
    second.restore(first.state())
    again += [second.update(i, v) for i, v in enumerate(series[33:], 33)]
    assert answers == again
    assert any(a.fired for a in answers)


def test_student_against_published_quantiles():
    for dof, level, value in (
        (1, 0.05, 6.313752),
        (2, 0.01, 6.964557),
        (9, 0.001, 4.296806),
        (30, 0.025, 2.042272),
    ):
        assert t_quantile(level, dof) == pytest.approx(value, rel=1e-6)
        assert t_tail(value, dof) == pytest.approx(level, rel=1e-5)


def test_nonfinite_fires_once_and_clears_after_quiet_steps():
    detector = Nonfinite(quiet=2)
    assert detector.update(0, {}) == {}
    assert detector.update(1, {"logprobs": 3})["logprobs"].fired
    assert detector.update(2, {"logprobs": 1}) == {}
    assert detector.update(3, {}) == {}
    assert detector.update(4, {}) == {}
    assert detector.update(5, {})["logprobs"].cleared
    assert detector.update(6, {"logprobs": 1})["logprobs"].fired


def test_silence_respects_the_cadence_of_a_column():
    detector = MissingColumn()
    for step in range(0, 30, 5):
        assert detector.update(step, ["logprobs", "ref_logprobs"]) == {}
        for between in range(step + 1, step + 5):
            assert detector.update(between, ["logprobs"]) == {}, between
    fired = [step for step in range(30, 60) if "ref_logprobs" in detector.update(step, ["logprobs"])]
    assert fired == [25 + 15 + 1]
    assert detector.update(60, ["ref_logprobs"])["ref_logprobs"].cleared


def test_growth_on_measured_windows_keeps_its_budget_in_the_rule_set():
    """The demo's post-tool ratio grows from 1.2 to 25 over its first windows, each with an interval: the rule must say so."""
    rule = next(rule for rule in RULES if rule.name == "post_tool_tail_growth")
    rng = np.random.default_rng(0)
    detector = rule.detector(Pipeline().budgets[rule.name])
    fired = [detector.update(i, 0.2 + 0.25 * i + 0.1 * float(rng.normal()), se=0.1).fired for i in range(16)]
    assert any(fired)
    calm = rule.detector(Pipeline().budgets[rule.name])
    assert not any(calm.update(i, 0.2 + 0.1 * float(rng.normal()), se=0.1).fired for i in range(200))


def silenced(steps, places):
    """Steps at which a column fell silent; stream and scan must agree on them."""
    rows, there = MissingColumn(), set(places)
    live = [s for i, s in enumerate(steps) if any(d.fired for d in rows.update(s, ["a"] if i in there else []).values())]  # fmt: skip
    scanned = MissingColumn().scan(np.array(steps), {"a": np.array(sorted(there))})
    assert [steps[i] for i, _, d in scanned if d.fired] == live
    return live


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5])
def test_a_column_that_comes_by_chance_falls_silent_seldom(share):
    """A tool that is called at one step in ten has long gaps by chance; three times the longest so far is too strict early on."""
    rng = np.random.default_rng(int(100 * share))
    runs = [silenced(list(range(300)), np.flatnonzero(rng.random(300) < share).tolist()) for _ in range(200)]
    assert sum(map(bool, runs)) <= 1


@pytest.mark.parametrize("spacing", [1, 10])
def test_a_column_that_never_missed_a_step_falls_silent_within_a_few(spacing):
    """Rows missed until the alarm after 10, 100 and 1,000 rows: the fewer were seen, the more are waited for."""
    late = [
        silenced([spacing * i for i in range(n + 30)], range(n))[0] // spacing - n + 1
        for n in (10, 100, 1000)
    ]
    assert late == ([13, 6, 4] if spacing == 1 else [12, 5, 4])


def test_a_rare_column_that_stops_falls_silent_when_chance_no_longer_explains_it():
    """50 of 100 rows in pairs: Wilson's lower end for 49 of 97, two deviates, is 0.4055; log(1e-6) / log(0.5945) is 26.6 rows."""
    places = [i for i in range(100) if i % 4 < 2]
    assert silenced(list(range(200)), places) == [97 + 27 + 1]
