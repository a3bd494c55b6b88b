"""Rules on the tails of drift, on what the reference supports, and on where the gradient's weight lies.

Drift grows in every open run that learns, and in runs that live: rules on its growth, and on the loss of
reference support that goes with it, are notes (docs/early-warning-test.md: they disturbed healthy runs).
"""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.rules.rule import SLOWLY, Rule, Suppression, growth, mean_shift

_POST = "docs/architecture.md, Growth; Hidden-variance post, January 2026; richardli.xyz/rl-collapse"
_CONSTRAIN = (
    "Check reference support and the tools' outputs in this window. Constrain the tool's output format, "
    "raise the KL coefficient or truncate weights on post-tool tokens, keep a checkpoint from before `since`."
)

TAIL_RULES: tuple[Rule, ...] = (
    Rule("post_tool_tail_growth", "tail_ratio/p95", family="post_tool", severity="info",
        slice="post_tool", kind="tail", transform="log", detector=growth(bound("tail_growth")), weight=3.0,
        what="p95 of |drift| after a tool result grew relative to text",
        why="Tokens written after a tool result come from places the reference hardly supports; ratio-based "
            "gradients grow a heavy tail there, which averages over all tokens can hide.", advice=_CONSTRAIN,
        not_when="The baseline is ten windows: a run whose first ten windows are not typical of it.",
        reference=_POST),
    Rule("lagged_drift_growth", "lagged_drift/p95", family="post_tool", severity="info",
        slice="post_tool", kind="tail", transform="log", detector=growth(bound("lagged_growth")), weight=2.0,
        what="the policy changes faster than it did, on fixed probe transcripts, after a tool result",
        why="The transcripts are fixed, so this is the policy's own change and not a change of its inputs.",
        advice="Lower the learning rate or the updates a batch; compare staleness and gradient norm.",
        not_when="A learning rate that is still warming up.", reference="docs/architecture.md, Growth"),
    Rule("support_falling", "ref_logprob/below_5_frac", family="support", severity="info",
        slice="post_tool", kind="tail", transform="log", floor=bound("clip_floor"),
        detector=mean_shift(1, lenient=True),
        suppressions=(SLOWLY,),
        what="more tokens after a tool result are ones the reference gives less than one chance in 148",
        why="Falling reference support is how tool outputs destabilise a run: E[w^2] grows with it.",
        advice=_CONSTRAIN, not_when="A policy that was meant to leave its reference.", reference=_POST),
    Rule("weight_concentration", "weight_mass/top_trajectory_frac", family="concentration", kind="tail",
        transform="log", detector=mean_shift(1),
        suppressions=(Suppression("aggregate/reward", 1, settled=True),),
        what="one trajectory carries more of the gradient's weight than it used to",
        why="A step that rests on one trajectory is a step of high variance.",
        advice="Look at that trajectory in the exemplars; check length normalisation and advantage scaling.",
        not_when="Batches that shrank on purpose."),
)  # fmt: skip
