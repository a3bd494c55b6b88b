"""All rules: which detector on which reading, with which share of the budget, and what a person should do about it.

Every rule's `key` is a row of the catalog, and a test proves that some measure emits it. `rule_sets/` holds them by
family; docs/explanation/detectors.md shows each with a real trace.
"""

from __future__ import annotations

from trimtab.detect.rules.composite import TOGETHER
from trimtab.detect.rules.environment import ENVIRONMENT
from trimtab.detect.rules.mismatch import MISMATCH
from trimtab.detect.rules.policy import POLICY
from trimtab.detect.rules.preference import PREFERENCE
from trimtab.detect.rules.reward import REWARD
from trimtab.detect.rules.rule import Rule, StreamRule
from trimtab.detect.rules.tails import TAILS

RULES: tuple[Rule, ...] = (*TAILS, *MISMATCH, *POLICY, *REWARD, *ENVIRONMENT, *PREFERENCE, *TOGETHER)
"""Rules on readings. Their false-alarm budgets add up to the catalog's `budget` (`trimtab.detect.rules.rule.split`)."""

STREAM_RULES: dict[str, StreamRule] = {
    "nonfinite": StreamRule(
        "nonfinite", "critical", "NaN or infinity in {column}",
        "A value that should alarm must not be dropped: training on it destroys the weights silently.",
        "Stop or roll back to before `since`; look for division by zero, log of zero, overflow of a ratio, a broken engine.",
        "house rule 2; verl#747, verl#721",
    ),
    "column_silent": StreamRule(
        "column_silent", "critical", "{column} stopped arriving",
        "A verdict that rests on a column that is no longer there would be a guess.",
        "Check the adapter's cost and error lines below; until it is back, this run is not being watched there.",
        "house rule 9",
    ),
}  # fmt: skip
