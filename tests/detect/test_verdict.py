"""The graded verdict: one alarm is looked at, agreeing ones are acted on, silence is only health when something judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trimtab.detect.verdict import Evidence, judge
from trimtab.types import Alarm

CALM = Evidence(
    num_steps=100, observed=frozenset({"drift"}), not_observed={}, num_windows=50, judged=("kl_break",), pending={},
    tail_ready=True, aggregate_ready=True, post_tool_tokens=5000, num_failures=0, num_failed_steps=0, last_failed=False,
)  # fmt: skip


def alarm(
    rule: str, step: int, severity: str = "warning", cleared: int | None = None, **changes: Any
) -> Alarm:
    made = Alarm(rule=rule, step=step, since=step - 5, severity=severity, slice="all", readings=(), bound=1.0, why="", advice="", reference="")  # fmt: skip
    return replace(made, cleared=cleared, **changes)


@pytest.mark.parametrize(
    ("alarms", "word"),
    [
        ([], "healthy"),
        ([alarm("a", 10, "info")], "healthy"),
        ([alarm("a", 10)], "alarms"),
        ([alarm("a", 10, "critical")], "alarms"),
        ([alarm("a", 10), alarm("b", 11), alarm("c", 12)], "alarms"),
        ([alarm("a", 10), alarm("b", 11), alarm("c", 12), alarm("d", 90)], "unhealthy"),
        ([alarm("a", 10, cleared=50), alarm("b", 11), alarm("c", 12), alarm("d", 90)], "alarms"),
        ([alarm("a", 10), alarm("a", 20), alarm("a", 30), alarm("a", 40)], "alarms"),  # one rule, four times
        ([alarm("a", 10, "critical"), alarm("b", 11)], "unhealthy"),
        ([alarm("a", 10, "critical", cleared=20), alarm("b", 21)], "alarms"),
        ([alarm("a", 10, "critical", cleared=20), alarm("b", 20)], "unhealthy"),  # both stood at step 20
        ([alarm("a", 10, "critical"), alarm("b", 11, "info")], "alarms"),
        ([alarm("nonfinite", 10, "critical", cleared=11)], "unhealthy"),
    ],
)
def test_the_word_rests_on_alarms_that_stood_together(alarms, word):
    verdict = judge(alarms, CALM)
    assert verdict.word == word
    assert verdict.exit_code == (0 if word == "healthy" else 1)
    assert judge(alarms[::-1], CALM).word == word


def test_the_reason_names_who_agreed_and_when():
    told = judge([alarm("kl_surge", 40, "critical"), alarm("reward_drop", 55)], CALM).reason
    assert told == "2 alarms, first kl_surge at step 40; together at step 55: reward_drop, kl_surge"


def test_a_hidden_alarm_says_how_many_rules_on_averages_could_speak():
    """Silence of a rule that still collects its baseline is no calm: the reader is told how many that is."""
    told = judge([alarm("post_tool_tail_growth", 30, "critical", hidden=True, heard=(4, 15))], CALM).reason
    assert told.endswith("(no aggregate rule had fired; 4 of 15 could speak by then)")
    unknown = judge([alarm("post_tool_tail_growth", 30, "critical", hidden=True)], CALM).reason
    assert unknown.endswith("(no aggregate rule had fired)")


@pytest.mark.parametrize(("num_failed_steps", "word"), [(10, "healthy"), (11, "blind")])
def test_a_monitor_that_failed_at_more_than_a_tenth_of_the_steps_is_blind(num_failed_steps, word):
    verdict = judge([], replace(CALM, num_failures=1, num_failed_steps=num_failed_steps))
    assert verdict.word == word
    assert ("the monitor failed at 11 of 100 steps" in verdict.reason) == (word == "blind")


def test_alarms_outrank_blindness_and_blindness_outranks_calm():
    blind = replace(CALM, observed=frozenset(), not_observed={"drift": "no reference"})
    assert judge([], blind).word == "blind"
    assert judge([alarm("a", 10)], blind).word == "alarms"
    assert judge([], replace(CALM, tail_ready=False)).word == "not judged yet"
