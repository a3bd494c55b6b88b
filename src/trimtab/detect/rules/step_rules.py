"""Rules on the series of single steps: the first to move in runs that collapse slowly.

Bounds were set on the tuning seeds of the collapse bank (reproduce/collapse.py). Their false alarms are
measured on its healthy runs, not derived, so they have no part of the budget that the other rules share.
"""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.rules.rule import Rule, count, record_break

_CAUSES = (
    "Compare mismatch with staleness. Mismatch that rose means that the engines disagree: weights that were "
    "not synchronised, another precision, another template. Staleness means that rollouts are too old or "
    "updates too large. Until the cause is found, lower the learning rate or truncate importance weights, "
    "and keep a checkpoint from before `since`."
)
_ON_PURPOSE = "A lag, an engine or a learning rate that was changed on purpose at `since`."
_LONGER = "Sequences that grew much longer: their weights are products over more tokens."
_SPREAD = (
    "Sequence weights spread: an update rests on a few rollouts. In runs that collapsed slowly this came "
    "before the reward fell."
)
_SOURCE = "docs/explanation/step-rules.md; measured by reproduce/collapse.py"
_VCPO = f"{_SOURCE}; arXiv 2602.17616 (VCPO)"
_FLOOR = bound("tail_floor")  # two policies that are the same have a p95 of 0
_BASELINE = count("step_baseline")

STEP_RULES: tuple[Rule, ...] = (
    Rule("total_high", "step/total/p95", family="staleness", slice="*", kind="tail", transform="log",
        floor=_FLOOR, weight=0.0, also=("post_tool",),
        detector=record_break(1, "step_tail", "step_tail_margin", span=4, errors=1.0, baseline=_BASELINE),
        what="the trained policy is further from its rollouts than ever before",
        why="The data no longer come from the policy that is trained, often after a tool result first, where "
            "few rollouts cover what is written: gradients grow a heavy tail while averages stay calm.",
        advice=_CAUSES, not_when=_ON_PURPOSE, reference=_SOURCE),
    Rule("sequence_ess_fall", "step/total/sequence_ess_frac", family="staleness", slice="*", kind="tail",
        transform="log", weight=0.0, also=("post_tool",),
        detector=record_break(-1, "step_ess", "step_ess_margin", span=6, baseline=_BASELINE),
        what="fewer sequences than ever carry the weight of a step", why=_SPREAD, advice=_CAUSES,
        not_when=_LONGER, reference=_VCPO),
)  # fmt: skip
