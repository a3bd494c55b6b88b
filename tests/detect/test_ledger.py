"""What an alarm says of the rules on averages: silence of rules that cannot speak yet is no calm."""

from __future__ import annotations

import pytest

from trimtab.detect.detector import Decision
from trimtab.detect.ledger import Ledger
from trimtab.detect.rules import RULES
from trimtab.records import Reading, Window

RULE = next(rule for rule in RULES if rule.name == "post_tool_tail_growth")
KL = next(rule for rule in RULES if rule.name == "kl_surge")


def fire(ledger, rule):
    reading = Reading(rule.key, 30, Window(30, 30), rule.slice, 12.0, 600, 30)
    return ledger.edge(rule, reading, Decision(True, True, True, since=9, bound=10.0))[0]


@pytest.mark.parametrize(
    ("heard", "hidden"), [((9, 39), True), ((0, 39), False), ((0, 0), False), (None, True)]
)
def test_an_alarm_is_hidden_only_where_a_rule_on_averages_could_have_spoken(heard, hidden):
    alarm = fire(Ledger(RULES, lambda: heard), RULE)
    assert (alarm.hidden, alarm.heard) == (hidden, heard)


def test_after_a_rule_on_averages_nothing_is_hidden():
    ledger = Ledger(RULES, lambda: (9, 39))
    assert fire(ledger, KL).heard is None
    assert not fire(ledger, RULE).hidden
