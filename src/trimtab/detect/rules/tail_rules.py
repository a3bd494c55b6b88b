"""Rules on the tails of drift, on what the reference supports, and on where the gradient's weight lies."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.detectors.prediction_limit import PredictionLimit
from trimtab.detect.rules.rule import Rule, Suppression, change, excursion

_POST = "docs/architecture.md, Growth; Hidden-variance post, January 2026; richardli.xyz/rl-collapse"
_CONSTRAIN = (
    "Look at reference support and at the tools' outputs in this window. Constrain the tool's output format, raise the KL "
    "coefficient or truncate weights on post-tool tokens only, and keep the last checkpoint from before `since`."
)
_LEARNS = Suppression("aggregate/reward", 1)
_SLOWLY = Suppression("aggregate/reward", 1, slow=64)

TAIL_RULES: tuple[Rule, ...] = (
    Rule(
        "post_tool_tail_growth", "tail_ratio/p95", "post_tool", "tail", "post_tool", "log",
        lambda arl: PredictionLimit(arl=arl, confirm=3, min_effect=bound("tail_growth")), "critical",
        "p95 of |drift| after a tool result grew relative to text",
        "Tokens written after a tool result come from places the reference hardly supports; ratio-based gradients grow a "
        "heavy tail there, which averages over all tokens can hide.",
        _CONSTRAIN,
        "The baseline is ten windows: a run whose first ten windows are not typical of it.", _POST, weight=3.0,
    ),
    Rule(
        "post_tool_tail_shift", "tail_ratio/p95", "post_tool", "tail", "post_tool", "log", change(1, lenient=True), "warning",
        "p95 of |drift| after a tool result moved up relative to text, by less than the growth rule asks for",
        "The same mechanism, seen while it is still small, against up to 256 windows of the run's own past.",
        _CONSTRAIN, "Tools whose outputs were changed on purpose at `since`", _POST, excuses=(_SLOWLY,),
    ),
    Rule(
        "lagged_drift_growth", "lagged_drift/p95", "post_tool", "tail", "post_tool", "log",
        lambda arl: PredictionLimit(arl=arl, confirm=3, min_effect=bound("lagged_growth")), "critical",
        "the policy changes faster than it did, on fixed probe transcripts, after a tool result",
        "The transcripts are fixed, so this is the policy's own change and not a change of its inputs.",
        "Lower the learning rate, or take fewer updates a batch; compare with staleness and the gradient norm.",
        "A learning rate that is still warming up.", "docs/architecture.md, Growth", weight=2.0,
    ),
    Rule(
        "lagged_drift_shift", "lagged_drift/p95", "post_tool", "tail", "post_tool", "log", change(1), "warning",
        "the policy changes somewhat faster than it did on fixed probe transcripts",
        "The same, seen while it is still small.",
        "Compare with staleness, the gradient norm and the learning rate's schedule.",
        "A learning rate that is still warming up.", "docs/architecture.md, Growth",
    ),
    Rule(
        "drift_tail_surge", "drift/p95", "all", "tail", "kl", "identity",
        excursion(1, bound("surge"), floor=bound("drift_floor")), "info",
        "p95 of |drift| over all tokens grew fourfold within a hundred windows",
        "In the pilot's runs with open tool outputs at a moderate rate the tail over all tokens grew early, while entropy fell more slowly than with constrained ones; none of them collapsed.",
        "Lower the learning rate, look at which slice carries it, keep the last checkpoint from before `since`.",
        "Fast learners: pilot runs at a rate of 1e-3 showed the same and did not collapse, so this is information.", "docs/explanation/pilot.md",
    ),
    Rule(
        "drift_tail_break", "drift/p95", "all", "tail", "kl", "log", change(1, lenient=True, min_effect=bound("tail_change")), "warning",
        "p95 of |drift| over all tokens rises faster than it did",
        "Drift from the start grows in every run that learns; faster growth than the run's own is what is looked for.",
        "Check the learning rate's schedule and which slice carries it.",
        "A run that has just begun to learn.", "docs/explanation/pilot.md", excuses=(_LEARNS,),
    ),
    Rule(
        "support_falling", "ref_logprob/below_5_frac", "post_tool", "tail", "support", "log", change(1, lenient=True), "warning",
        "more tokens after a tool result are ones the reference gives less than one chance in 148",
        "Falling reference support is the mechanism by which tool outputs destabilise: E[w^2] grows with it.",
        _CONSTRAIN, "A policy that was meant to leave its reference.", _POST, excuses=(_SLOWLY,), floor=bound("clip_floor"),
    ),
    Rule(
        "weight_concentration", "weight_mass/top_trajectory_frac", "all", "tail", "concentration", "log", change(1),
        "warning",
        "one trajectory carries more of the gradient's weight than it used to",
        "A step that rests on one trajectory is a step of high variance.",
        "Look at that trajectory in the exemplars; check length normalisation and advantage scaling.",
        "Batches that shrank on purpose.", "default, not calibrated", excuses=(Suppression("aggregate/reward", 1, settled=True),),
    ),
    Rule(
        "distribution_stretch", "drift/p999", "post_tool", "tail", "post_tool", "log", change(1, lenient=True), "info",
        "the far tail (p99.9) after a tool result stretches away",
        "The last of a tail to move; with few tokens a window it rests on one or two of them.",
        "Read it with p95 and p99 and with n.", "Fewer than 10,000 tokens a window.", _POST, weight=0.5,
    ),
)  # fmt: skip
