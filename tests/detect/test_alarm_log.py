"""What an alarm says of the rules on averages: silence of rules that cannot speak yet is no calm."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.detect.alarm_log import AlarmLog
from trimtab.detect.detectors.base import Decision
from trimtab.detect.detectors.composite_reading import FAMILIES, CompositeReading
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.whole_series import columns_of, joint_series
from trimtab.types import Reading, Window

RULE = next(rule for rule in RULES if rule.name == "total_high")
KL = next(rule for rule in RULES if rule.name == "kl_surge")


def fire(alarm_log, rule):
    reading = Reading(rule.key, 30, Window(30, 30), rule.slice, 12.0, 600, 30)
    return alarm_log.transition(rule, reading, Decision(True, True, True, since=9, bound=10.0))[0]


@pytest.mark.parametrize(
    ("heard", "hidden"), [((9, 39), True), ((0, 39), False), ((0, 0), False), (None, True)]
)
def test_an_alarm_is_hidden_only_where_a_rule_on_averages_could_have_spoken(heard, hidden):
    alarm = fire(AlarmLog(RULES, lambda: heard), RULE)
    assert (alarm.hidden, alarm.heard) == (hidden, heard)


def test_after_a_rule_on_averages_nothing_is_hidden():
    alarm_log = AlarmLog(RULES, lambda: (9, 39))
    assert fire(alarm_log, KL).heard is None
    assert not fire(alarm_log, RULE).hidden


def test_an_alarm_began_with_the_window_whose_step_it_rests_on():
    """The reading of step 9 closed a window that began at step 4; of another slice it says nothing."""
    for where, since in ((RULE.slice, 4), ("other", 9)):
        alarm_log = AlarmLog(RULES, lambda: (0, 0))
        alarm_log.observe(Reading(RULE.key, 9, Window(4, 9), where, 1.0, 600, 30))
        assert fire(alarm_log, RULE).since == since


def series(**changes):
    """A flat run of reward, gradients, tool failures; `changes`: name -> factor from step 200 of 400 on."""
    rng = np.random.default_rng(4)
    late = np.arange(400) >= 200
    names = {"reward": 0.5, "grad_norm": 1.0, "tool_failure_frac": 0.1, "tool_latency_s": 2.0}
    return {
        (f"aggregate/{name}", "all"): (
            np.arange(400),
            level * np.exp(0.05 * rng.normal(size=400)) * np.where(late, changes.get(name, 1.0), 1.0),
        )
        for name, level in names.items()
    }


def test_a_joint_alarm_of_one_reading_alone_waits():
    """The reward's own rule tells of it; tools and gradients did nothing."""
    pipeline = Pipeline()
    pipeline.on_log(series(reward=0.6))
    assert {a.rule for a in pipeline.alarms if a.severity != "info"} <= {"reward_drop", "reward_break"}
    assert not [a for a in pipeline.alarms if a.rule.endswith("_together")]
    ((at, total),) = joint_series(
        {"outcome": CompositeReading(FAMILIES["outcome"])}, columns_of(series(reward=0.6))
    ).values()
    edges = Pipeline().by_key["joint/outcome"][0].detector(1e6).scan(at, total)
    assert any(decision.fired for _, decision in edges), "the sum alone would alarm"


def test_a_joint_alarm_that_waited_is_told_once_a_second_reading_moves():
    pipeline, log = Pipeline(), series(reward=0.6)
    steps, gradient = log["aggregate/grad_norm", "all"]
    log["aggregate/grad_norm", "all"] = steps, gradient * np.where(steps >= 225, 1.3, 1.0)
    pipeline.on_log(log)
    (alarm,) = (a for a in pipeline.alarms if a.rule == "outcome_together")
    assert (alarm.severity, 225 < alarm.step < 270) == ("warning", True)
    assert alarm.readings[0].reason.endswith("aggregate/reward down, aggregate/grad_norm up")


def test_a_joint_alarm_names_what_moved():
    whole, stream = Pipeline(), Pipeline()
    log = series(reward=0.93, grad_norm=1.08)
    whole.on_log(log)
    for step in range(400):
        stream.on_readings(
            [Reading(key, step, Window(step, step), "all", float(v[step]), 0, 0) for (key, _), (_, v) in log.items()]
        )  # fmt: skip
    for pipeline in (whole, stream):
        (alarm,) = (a for a in pipeline.alarms if a.rule == "outcome_together" and a.severity == "warning")
        assert alarm.readings[0].reason.endswith(": aggregate/reward down, aggregate/grad_norm up")
