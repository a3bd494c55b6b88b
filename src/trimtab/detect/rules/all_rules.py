"""All rules: which detector judges which reading, with which part of the budget, and the text of the alarm.

Every rule's `key` is a row of the catalog, and a test proves that some measure emits it.
The files `*_rules.py` hold them by family; docs/explanation/detectors.md shows each with a real trace.
"""

from __future__ import annotations

from trimtab.detect.rules.composite_rules import COMPOSITE_RULES
from trimtab.detect.rules.environment_rules import ENVIRONMENT_RULES
from trimtab.detect.rules.fault_rules import FAULT_RULES
from trimtab.detect.rules.machine_rules import MACHINE_RULES
from trimtab.detect.rules.mismatch_rules import MISMATCH_RULES
from trimtab.detect.rules.policy_rules import POLICY_RULES
from trimtab.detect.rules.preference_rules import PREFERENCE_RULES
from trimtab.detect.rules.reward_rules import REWARD_RULES
from trimtab.detect.rules.rule import Rule, StreamRule
from trimtab.detect.rules.step_rules import STEP_RULES
from trimtab.detect.rules.tail_rules import TAIL_RULES

RULES: tuple[Rule, ...] = (
    *STEP_RULES,
    *FAULT_RULES,
    *TAIL_RULES,
    *MISMATCH_RULES,
    *POLICY_RULES,
    *REWARD_RULES,
    *ENVIRONMENT_RULES,
    *MACHINE_RULES,
    *PREFERENCE_RULES,
    *COMPOSITE_RULES,
)
"""Rules on readings. Their false-alarm budgets add up to the catalog's `budget` (`split`)."""

ALIASES: dict[str, str] = {
    "post_tool_total_high": "total_high", "text_total_high": "total_high",
    "post_tool_total_rise": "total_high", "post_tool_ess_fall": "sequence_ess_fall",
    "post_tool_tail_shift": "post_tool_tail_growth", "post_tool_together": "post_tool_tail_growth",
    "distribution_stretch": "post_tool_tail_growth", "lagged_drift_shift": "lagged_drift_growth",
    "support_together": "support_falling", "drift_tail_surge": "post_tool_tail_growth",
    "drift_tail_break": "post_tool_tail_growth",
    "kl_jump": "kl_break", "khat_rising": "mismatch_ess_falling",
    "mismatch_tail_growth": "mismatch_ess_falling", "mismatch_together": "mismatch_ess_falling",
    "staleness_together": "policy_kl_growth", "entropy_floor": "entropy_gone",
    "template_together": "template_collapse", "looping_together": "repetition",
    "groups_together": "groups_without_gradient", "groups_mostly_flat": "group_collapse",
    "likelihood_together": "correct_likelihood_falling", "gradient_together": "grad_norm_growth",
    "reward_plateau": "group_collapse", "reward_stands_still": "group_collapse",
    "late_jump": "reward_jump", "hacking_together": "reward_length_coupling",
    "reward_length_high": "reward_length_coupling", "held_out_drop": "held_out_falls",
    "held_out_loss_rising": "held_out_loss_turns", "length_doubled": "length_growth",
    "tools_together": "tool_failures", "tool_use_together": "tool_use_dies",
    "no_call_growth": "tool_use_dies", "value_unexplained": "value_loss_growth",
    "value_together": "value_loss_growth", "preference_together": "margin_collapse",
    "throughput_together": "throughput_rot",
}  # fmt: skip
"""Rule that was taken out -> the nearest of today. Stored alarms keep their names and are read by it."""

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
    "rank_silent": StreamRule(
        "rank_silent", "warning", "{column} has written nothing since",
        "A rank that hangs or is paused holds up the job at the next collective, or drops out of its data.",
        "Look at that rank's machine and at its stack (py-spy dump); restart it, or the job.",
        "docs/explanation/ranks.md; default, not calibrated",
    ),
}  # fmt: skip

LIVE_RULES = frozenset({"rank_silent"})
"""Rules on what only a running job shows: a record cannot be judged by them again."""
