"""Rules on the series of single steps: the first to move in runs that collapse slowly.

Bounds were set on the tuning seeds of the collapse bank (reproduce/collapse.py). Their false alarms are
measured on its healthy runs, not derived, so they hardly take from the budget that the other rules share.
"""

from __future__ import annotations

from trimtab.detect.rules.rule import Rule, record_break

_CAUSES = (
    "Compare mismatch with staleness. Mismatch that rose means that the engines disagree: weights that were "
    "not synchronised, another precision, another template. Staleness means that rollouts are too old or "
    "updates too large. Until the cause is found, lower the learning rate or truncate importance weights, "
    "and keep a checkpoint from before `since`."
)
_SOURCE = "docs/explanation/step-rules.md; measured by reproduce/collapse.py"
_UNCOUNTED = 0.01
_TAIL = record_break(1, "step_tail", "step_tail_margin", errors=1.645)

STEP_RULES: tuple[Rule, ...] = (
    Rule("post_tool_total_rise", "step/total/p95", family="post_tool", slice="post_tool", kind="tail",
        transform="log", detector=_TAIL, weight=_UNCOUNTED,
        what="after a tool result, the policy left its rollouts further behind than ever before",
        why="Tokens after a tool result come from places that few rollouts cover; there the ratio of the "
            "trained to the sampling policy grows first, and gradients with it, while averages stay calm.",
        advice=_CAUSES,
        not_when="A lag, an engine or a learning rate that was changed on purpose at `since`.",
        reference=_SOURCE),
    Rule("text_total_rise", "step/total/p95", family="staleness", slice="text", kind="tail",
        transform="log", detector=_TAIL, weight=_UNCOUNTED,
        what="before any tool result, the policy left its rollouts further behind than ever before",
        why="The data no longer come from the policy that is trained: gradients grow a heavy tail.",
        advice=_CAUSES,
        not_when="A lag, an engine or a learning rate that was changed on purpose at `since`.",
        reference=_SOURCE),
    Rule("sequence_ess_fall", "step/total/sequence_ess_frac", family="staleness", kind="tail",
        transform="log", detector=record_break(-1, "step_ess", "step_ess_margin", span=5), weight=_UNCOUNTED,
        what="fewer sequences than ever carry the weight of a step",
        why="Sequence weights spread: an update rests on a few rollouts. In runs that collapsed slowly this "
            "came before the reward fell.", advice=_CAUSES,
        not_when="Sequences that grew much longer: their weights are products over more tokens.",
        reference=f"{_SOURCE}; arXiv 2602.17616 (VCPO)"),
)  # fmt: skip
