"""Every rule speaks when what it is for happens, through the pipeline and through a log file; budgets add up; excuses hold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from trimtab.catalog import BOUNDS, READINGS, bound
from trimtab.catalog.episode_readings import JOINT
from trimtab.detect.detectors.composite_reading import FAMILIES
from trimtab.detect.detectors.drawdown import Drawdown
from trimtab.detect.detectors.excursion import Excursion
from trimtab.detect.detectors.mann_kendall import MannKendall
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.detectors.outlier import Outlier
from trimtab.detect.detectors.plateau import PlateauExit
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.detectors.record_break import RecordBreak
from trimtab.detect.detectors.step_change import StepChange
from trimtab.detect.detectors.threshold import Threshold
from trimtab.detect.detectors.trend_break import TrendBreak
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import split
from trimtab.report.metric_log_diagnosis import diagnose_log
from trimtab.types import Reading, Window

STEPS, ONSET = 400, 220


def _calm(rng: np.random.Generator, rule) -> np.ndarray:
    return 1.0 + 0.02 * rng.normal(size=STEPS)


def _sick(rng: np.random.Generator, rule) -> np.ndarray:
    """A series on the reading's own scale that does what the rule is for, from ONSET on."""
    detector, x = rule.detector(1e5), _calm(rng, rule)
    late = np.arange(STEPS) >= ONSET
    if isinstance(detector, Threshold):
        return np.where(late, detector.limit + detector.sign * 0.5 * abs(detector.limit), detector.limit - 0.5 * detector.sign * abs(detector.limit))  # fmt: skip
    if isinstance(detector, Excursion):
        level = max(detector.floor, 1.0) if detector.sign > 0 else 1.0
        return level * x * np.where(late, detector.factor ** (2.0 if detector.sign > 0 else 3.0), 1.0)
    if isinstance(detector, RecordBreak):
        calm, sick = math.exp(detector.level) * np.exp(detector.sign * np.array([-0.5, 2.5]))
        return x * np.where(late, sick, calm)
    if isinstance(detector, StepChange):
        return x * np.where(late, 100.0**detector.sign, 1.0)
    if isinstance(detector, Outlier):
        return np.where(np.arange(STEPS) == ONSET, 1e9, x)
    if isinstance(detector, PlateauExit):
        return np.where(late, x + 10.0, x)
    if isinstance(detector, Drawdown):
        return x + np.where(late, detector.sign * 0.5, 0.0)
    if isinstance(detector, MannKendall):
        return x - np.where(late, 0.1 * (np.arange(STEPS) - ONSET), 0.0)
    sign = detector.sign or 1
    return (
        np.exp(np.log(x) + np.where(late, sign * 1.5, 0.0))
        if isinstance(detector, (MeanShift, PredictionLimit, TrendBreak))
        else x
    )


@pytest.mark.parametrize("rule", [r for r in RULES if r.key not in JOINT], ids=lambda rule: rule.name)
def test_every_rule_fires_on_what_it_is_for_and_not_before(rule) -> None:
    rng = np.random.default_rng(3)
    where = rule.slice.replace("*", "search")
    pipeline = Pipeline()
    for step, value in enumerate(_sick(rng, rule).tolist()):
        pipeline.on_readings([Reading(rule.key, step, Window(step, step), where, value, 1000, 50)])
    mine = [alarm for alarm in pipeline.alarms if alarm.rule == rule.name]
    assert mine, "never fired"
    assert (
        ONSET <= mine[0].step <= ONSET + (105 if rule.name == "reward_part_idle" else 60)
    )  # it waits for a hundred values
    assert mine[0].slice == where


SHARES = [rule for rule in RULES if rule.floor > 0 and not rule.key.startswith("step/")]


@pytest.mark.parametrize("rule", SHARES, ids=lambda rule: rule.name)
def test_a_rule_on_a_share_sees_it_leave_zero(rule) -> None:
    """A share of exactly 0 has no logarithm; it is a level all the same, the best there is."""
    level = 0.1 if rule.detector(1e5).sign > 0 else 0.0
    values = np.where(np.arange(STEPS) < ONSET, 0.1 - level, level).tolist()
    whole, stream = Pipeline(), Pipeline()
    whole.on_log({(rule.key, rule.slice): (list(range(STEPS)), values)})
    for step, value in enumerate(values):
        stream.on_readings([Reading(rule.key, step, Window(step, step), rule.slice, value, 1000, 50)])
    for pipeline in (whole, stream):
        first = next(alarm for alarm in pipeline.alarms if alarm.rule == rule.name)
        assert ONSET <= first.step <= ONSET + 10
        assert -1e-9 <= first.bound <= 0.1


def test_the_floor_of_a_logarithm_is_taken_off_again() -> None:
    rule = next(rule for rule in SHARES if rule.name == "truncation")
    assert rule.value(0.0) == math.log(bound("share_floor"))
    assert rule.raw(rule.value(0.25)) == pytest.approx(0.25)
    assert rule.values(np.array([0.0, 0.3])).tolist() == [rule.value(0.0), rule.value(0.3)]
    assert math.isnan(rule.value(-0.5))


def test_a_norm_of_zero_is_no_gradient_and_no_calm_past_of_a_surge() -> None:
    rng = np.random.default_rng(10)
    late = np.where(np.arange(300) < 100, 0.0, np.exp(0.2 * rng.normal(size=300)))
    pipeline = Pipeline()
    pipeline.on_log({("aggregate/grad_norm", "all"): (list(range(300)), late.tolist())})
    assert [a.rule for a in pipeline.alarms if a.severity != "info"] == ["gradient_none"]
    surge = next(rule for rule in RULES if rule.name == "grad_norm_surge")
    assert math.isnan(surge.value(0.0))
    assert np.isnan(surge.values(np.array([0.0, 2.0]))).tolist() == [True, False]


def test_a_growth_within_the_bend_of_the_first_steps_is_told() -> None:
    """KL rises as a power of the step, then a hundredfold within twenty; while the reward rises with it, that is information."""
    rng = np.random.default_rng(11)
    t = np.arange(200)
    kl = 0.0005 * (1 + t) ** 0.6 * np.exp(0.1 * rng.normal(size=200)) * 100 ** np.clip((t - 60) / 20, 0, 1)
    for rise, severity in ((0.0, "warning"), (0.4, "info")):
        reward = 0.4 + rise * np.clip((t - 55) / 30, 0, 1) + 0.02 * rng.normal(size=200)
        pipeline = Pipeline()
        pipeline.on_log(
            {(f"aggregate/{k}", "all"): (t.tolist(), v.tolist()) for k, v in (("kl", kl), ("reward", reward))}
        )
        first = next(a for a in pipeline.alarms if a.rule == "kl_leap")
        assert (first.severity, 65 <= first.step <= 85) == (severity, True)
    calm = Pipeline()
    calm.on_log({("aggregate/kl", "all"): (t.tolist(), (0.0005 * (1 + t) ** 0.6).tolist())})
    assert not calm.alarms


def test_tools_are_judged_and_not_the_values_of_their_arguments() -> None:
    """A file that one task named and no other will is not abandoned; a required one is."""
    pipeline = Pipeline()
    for where in ("tool/read_file", "tool/read_file/path=a.py", "file/a.py"):
        pipeline.on_readings([Reading("tools/steps_since_call", 200, Window(191, 200), where, 150.0, 10, 5)])
    assert {(a.rule, a.slice) for a in pipeline.alarms} == {
        ("tool_abandoned", "tool/read_file"),
        ("file_abandoned", "file/a.py"),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_joint_rule_fires_when_its_members_move_together(family) -> None:
    rng = np.random.default_rng(4)
    series = {}
    for member in FAMILIES[family]:
        noise = rng.normal(size=STEPS) + 1.5 * member.sign * (np.arange(STEPS) >= ONSET)
        series[member.key] = (list(range(STEPS)), np.exp(0.1 * noise).tolist())
    pipeline = Pipeline()
    pipeline.on_log(series)
    assert any(a.rule == f"{family}_together" and a.step >= ONSET for a in pipeline.alarms)


def test_a_log_file_reaches_every_rule_on_averages(tmp_path) -> None:
    """What a user does: one JSONL file, `trimtab diagnose`. A rule that cannot run is named with the input it lacks."""
    rng = np.random.default_rng(5)
    fired: set[str] = set()
    lacking: set[str] = set()
    for rule in (r for r in RULES if r.key.startswith("aggregate/")):
        name = rule.key.removeprefix("aggregate/")
        path = tmp_path / f"{rule.name}.jsonl"
        rows = [{"step": t, name: v} for t, v in enumerate(_sick(rng, rule).tolist())]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = diagnose_log(path)
        fired |= {rule.name} & {alarm.rule for alarm in found.alarms}
        lacking |= set(found.not_run)
    assert fired == {r.name for r in RULES if r.key.startswith("aggregate/")}
    assert {"post_tool_tail_growth", "mismatch_ess_falling"} <= lacking


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 7, 100])
def test_nan_anywhere_alarms_at_its_step_and_the_detectors_work_on(bad, at) -> None:
    rng = np.random.default_rng(6)
    pipeline = Pipeline()
    for step, value in enumerate((0.5 + 0.02 * rng.normal(size=STEPS)).tolist()):
        value = bad if step == at else value - 0.3 * (step >= ONSET)
        fired = pipeline.on_step(
            step, {} if math.isfinite(value) else {"metrics/reward": 1}, ["metrics/reward"]
        )
        assert [a.rule for a in fired] == (["nonfinite"] if step == at else [])
        pipeline.on_readings([Reading("aggregate/reward", step, Window(step, step), "all", value, 0, 0)])
    assert any(alarm.rule == "reward_drop" and alarm.step >= ONSET for alarm in pipeline.alarms)


def test_a_log_and_a_stream_give_the_same_alarms() -> None:
    rng = np.random.default_rng(7)
    series = {}
    for n, key in enumerate(sorted({r.key for r in RULES if r.slice == "all" and r.key not in JOINT})):
        noise = np.convolve(rng.normal(size=STEPS), [0.5, 0.3, 0.2], mode="same")
        drift = (n % 3 - 1) * 0.4 * (np.arange(STEPS) > ONSET + 5 * n % 40)
        series[key, "all"] = (list(range(STEPS)), np.exp(0.1 * noise + drift).tolist())
    whole, stream = Pipeline(), Pipeline()
    whole.on_log(series)
    for step in range(STEPS):
        stream.on_readings(
            [Reading(key, step, Window(step, step), "all", values[step], 0, 0) for (key, _), (_, values) in series.items()]
        )  # fmt: skip

    def told(pipeline):
        return sorted(
            (a.step, a.rule, a.severity, a.since, a.cleared or -1, round(a.bound, 9)) for a in pipeline.alarms
        )

    assert told(whole) == told(stream)
    assert len(whole.alarms) > 20


def test_readings_that_rest_on_too_little_are_counted() -> None:
    """A tool's failures of fewer than eight calls are no share; the rule says how many windows it left out."""
    pipeline = Pipeline()
    for step in range(30):
        calls = 3 if step % 5 == 0 else 40
        pipeline.on_readings(
            [Reading("tools/failure_frac", step, Window(step, step), "tool/sql", 0.1, calls, 5)]
        )
    assert pipeline.left_out() == {"tool_failures_by_tool": 6}
    assert pipeline.seen["tool_failures_by_tool", "tool/sql"] == 24


def test_the_budget_is_split_over_rules_and_slices() -> None:
    budgets = split(RULES, bound("budget"))
    spent = sum((17.0 if rule.slice.endswith("*") else 1.0) / budgets[rule.name] for rule in RULES)
    assert spent * bound("budget") == pytest.approx(1.0)


def test_an_excused_alarm_is_information_until_the_excuse_lapses() -> None:
    """KL rises while the reward rises: learning. When the reward no longer does, what is still over its bound is an alarm."""
    rng = np.random.default_rng(8)
    pipeline = Pipeline()
    for step in range(500):
        reward = 0.3 + 0.4 * min(max(step - 100, 0), 150) / 150 + 0.01 * rng.normal()
        kl = 0.01 * math.exp(
            1.5 * math.tanh(max(step - 100, 0) / 60) + 0.02 * max(step - 330, 0) + 0.05 * rng.normal()
        )
        pipeline.on_readings(
            [Reading(k, step, Window(step, step), "all", v, 0, 0) for k, v in (("aggregate/reward", reward), ("aggregate/kl", kl))]
        )  # fmt: skip
    mine = [alarm for alarm in pipeline.alarms if alarm.rule == "kl_break"]
    assert mine[0].severity == "info"
    assert "aggregate/reward rose with it" in mine[0].why
    assert any(alarm.severity == "warning" for alarm in mine[1:]), "the reward stood still from step 250 on"


def test_one_movement_is_one_alarm_however_often_its_detector_looks() -> None:
    """Absorbed into the past of the short windows, then seen by the long ones: it goes on and is not told twice. A later one is."""
    rng = np.random.default_rng(9)
    x = 0.05 * np.exp(0.25 * rng.normal(size=700))
    x[200:] *= 2.0
    x[480:] *= 4.0
    truncation = next(rule for rule in RULES if rule.name == "truncation")
    edges = truncation.detector(split(RULES, bound("budget"))["truncation"]).scan(
        np.arange(700), truncation.values(x)
    )
    assert sum(d.fired for _, d in edges) > 2, "the detector itself starts again"
    whole, stream = Pipeline(), Pipeline()
    whole.on_log({("aggregate/truncated_frac", "all"): (list(range(700)), x.tolist())})
    open_at = []
    for step, value in enumerate(x.tolist()):
        stream.on_readings(
            [Reading("aggregate/truncated_frac", step, Window(step, step), "all", value, 0, 0)]
        )
        if any(a.rule == "truncation" and a.cleared is None for a in stream.alarms):
            open_at.append(step)
    for pipeline in (whole, stream):
        mine = [a for a in pipeline.alarms if a.rule == "truncation"]
        assert [a.step // 10 for a in mine] == [20, 48]
    first = [step for step in open_at if step < 480]
    assert len(first) < first[-1] - first[0] + 1, "it cleared and was opened again"


def test_rules_have_words_and_bounds_have_sources() -> None:
    for rule in RULES:
        assert rule.key in READINGS, rule.name
        assert all((rule.what, rule.why, rule.advice, rule.not_when, rule.reference, rule.family)), rule.name
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(row.source and row.derivation for row in BOUNDS.values())
