"""Rules on the tails of drift, on what the reference supports, and on where the gradient's weight lies."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.rules.rule import LEARNS, SLOWLY, Rule, Suppression, excursion, growth, mean_shift

_POST = "docs/architecture.md, Growth; Hidden-variance post, January 2026; richardli.xyz/rl-collapse"
_CONSTRAIN = (
    "Check reference support and the tools' outputs in this window. Constrain the tool's output format, "
    "raise the KL coefficient or truncate weights on post-tool tokens, keep a checkpoint from before `since`."
)

TAIL_RULES: tuple[Rule, ...] = (
    Rule("post_tool_tail_growth", "tail_ratio/p95", family="post_tool", severity="critical",
        slice="post_tool", kind="tail", transform="log", detector=growth(bound("tail_growth")), weight=3.0,
        what="p95 of |drift| after a tool result grew relative to text",
        why="Tokens written after a tool result come from places the reference hardly supports; ratio-based "
            "gradients grow a heavy tail there, which averages over all tokens can hide.", advice=_CONSTRAIN,
        not_when="The baseline is ten windows: a run whose first ten windows are not typical of it.",
        reference=_POST),
    Rule("post_tool_tail_shift", "tail_ratio/p95", family="post_tool", slice="post_tool", kind="tail",
        transform="log", detector=mean_shift(1, lenient=True), suppressions=(SLOWLY,),
        what="p95 of |drift| after a tool result rose relative to text, less than the growth rule needs",
        why="The same mechanism while still small, against up to 256 windows of the run's own past.",
        advice=_CONSTRAIN, not_when="Tools whose outputs were changed on purpose at `since`",
        reference=_POST),
    Rule("lagged_drift_growth", "lagged_drift/p95", family="post_tool", severity="critical",
        slice="post_tool", kind="tail", transform="log", detector=growth(bound("lagged_growth")), weight=2.0,
        what="the policy changes faster than it did, on fixed probe transcripts, after a tool result",
        why="The transcripts are fixed, so this is the policy's own change and not a change of its inputs.",
        advice="Lower the learning rate or the updates a batch; compare staleness and gradient norm.",
        not_when="A learning rate that is still warming up.", reference="docs/architecture.md, Growth"),
    Rule("lagged_drift_shift", "lagged_drift/p95", family="post_tool", slice="post_tool", kind="tail",
        transform="log", detector=mean_shift(1),
        what="the policy changes somewhat faster than it did on fixed probe transcripts",
        why="The same, seen while it is still small.",
        advice="Compare with staleness, the gradient norm and the learning rate's schedule.",
        not_when="A learning rate that is still warming up.", reference="docs/architecture.md, Growth"),
    Rule("drift_tail_surge", "drift/p95", family="kl", severity="info", kind="tail",
        detector=excursion(1, bound("surge"), floor=bound("drift_floor")),
        what="p95 of |drift| over all tokens grew fourfold within a hundred windows",
        why="In the pilot's runs with open tool outputs at a moderate rate the tail over all tokens grew "
            "early, while entropy fell more slowly than with constrained ones; none of them collapsed.",
        advice="Lower the learning rate, see which slice carries it, keep a checkpoint from before `since`.",
        not_when="Fast learners: pilot runs at a rate of 1e-3 showed the same and did not collapse.",
        reference="docs/explanation/pilot.md"),
    Rule("drift_tail_break", "drift/p95", family="kl", kind="tail", transform="log",
        detector=mean_shift(1, lenient=True, min_effect=bound("tail_change")), suppressions=(LEARNS,),
        what="p95 of |drift| over all tokens rises faster than it did",
        why="Drift from the start grows in every run that learns; this one grows faster than before.",
        advice="Check the learning rate's schedule and which slice carries it.",
        not_when="A run that has just begun to learn.", reference="docs/explanation/pilot.md"),
    Rule("support_falling", "ref_logprob/below_5_frac", family="support", slice="post_tool", kind="tail",
        transform="log", floor=bound("clip_floor"), detector=mean_shift(1, lenient=True),
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
    Rule("distribution_stretch", "drift/p999", family="post_tool", severity="info", slice="post_tool",
        kind="tail", transform="log", detector=mean_shift(1, lenient=True), weight=0.5,
        what="the far tail (p99.9) after a tool result stretches away",
        why="The last of a tail to move; with few tokens a window it rests on one or two of them.",
        advice="Read it with p95 and p99 and with n.", not_when="Fewer than 10,000 tokens a window.",
        reference=_POST),
)  # fmt: skip
