"""All rules: which detector judges which reading, with which part of the budget, and the text of the alarm.

Every rule's `key` is a row of the catalog, and a test proves that some measure emits it.
The files `*_rules.py` hold them by family; docs/explanation/detectors.md shows each with a real trace.
"""

from __future__ import annotations

from trimtab.detect.rules.composite_rules import COMPOSITE_RULES
from trimtab.detect.rules.environment_rules import ENVIRONMENT_RULES
from trimtab.detect.rules.mismatch_rules import MISMATCH_RULES
from trimtab.detect.rules.policy_rules import POLICY_RULES
from trimtab.detect.rules.preference_rules import PREFERENCE_RULES
from trimtab.detect.rules.reward_rules import REWARD_RULES
from trimtab.detect.rules.rule import Rule, StreamRule
from trimtab.detect.rules.step_rules import STEP_RULES
from trimtab.detect.rules.tail_rules import TAIL_RULES

RULES: tuple[Rule, ...] = (
    *STEP_RULES,
    *TAIL_RULES,
    *MISMATCH_RULES,
    *POLICY_RULES,
    *REWARD_RULES,
    *ENVIRONMENT_RULES,
    *PREFERENCE_RULES,
    *COMPOSITE_RULES,
)
"""Rules on readings. Their false-alarm budgets add up to the catalog's `budget` (`split`)."""

STREAM_RULES: dict[str, StreamRule] = {
    "nonfinite": StreamRule(
        "nonfinite", "critical", "NaN or infinity in {column}",
        "A value that should alarm must not be dropped: training on it destroys the weights silently.",
        "Stop or roll back to before `since`; look for a division by zero, a log of zero, an overflow.",
        "CONTRIBUTING.md, rule 2; verl#747, verl#721",
    ),
    "column_silent": StreamRule(
        "column_silent", "critical", "{column} stopped arriving",
        "A verdict that rests on a column that is no longer there would be a guess.",
        "Check what logs it (the logger's settings, or the adapter's errors in a run's diagnosis); until it "
        "is back, nothing is watched there.",
        "CONTRIBUTING.md, rule 9",
    ),
}  # fmt: skip
