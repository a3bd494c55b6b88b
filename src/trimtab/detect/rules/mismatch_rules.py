"""Rules on the two engines' disagreement, on staleness and on clipping."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.rules.rule import SLOWLY, Rule, excursion, mean_shift, threshold

_ENGINES = (
    "Compare the engines' precision, sampling parameters and attention kernels; correct with sequence-level "
    "masking, or replay routes for a mixture of experts."
)
_SPEED = "richardli.xyz/rl-collapse; facts: vllm-kl rises before the reward falls"
_VERL = "verl docs, rollout_corr (the number there is for clamped weights; here the weights are raw)"

MISMATCH_RULES: tuple[Rule, ...] = (
    Rule("mismatch_ess_low", "mismatch/token_ess_frac", family="mismatch", severity="critical", kind="tail",
        detector=threshold("ess_frac", -1), weight=0.5,
        what="the effective sample size of mismatch weights is under the bound",
        why="Few tokens carry the whole correction: its variance is out of hand.", advice=_ENGINES,
        not_when="Windows of few tokens.", reference=_VERL),
    Rule("mismatch_ess_falling", "mismatch/token_ess_frac", family="mismatch", kind="tail",
        detector=mean_shift(-1), what="the effective sample size of mismatch weights falls",
        why="A sharp fall of ESS came before collapse in asynchronous training.", advice=_ENGINES,
        not_when="A change of lag or engine made on purpose at `since`.",
        reference="arXiv 2602.17616 (VCPO)"),
    Rule("khat_high", "mismatch/khat", family="mismatch", severity="info", kind="tail",
        detector=threshold("khat", 1), weight=0.5,
        what="the tail of mismatch weights is too heavy for a mean to be relied on",
        why="Above the bound an importance-weighted mean converges too slowly to be of use.",
        advice="Truncate or mask at sequence level; find the tokens in the exemplars.",
        not_when="Weights that hardly vary: their tail has a shape even where it does not matter, so this "
                 "is information; ESS says whether it does.",
        reference="Vehtari et al. 2024, arXiv 1507.02646"),
    Rule("mismatch_surge", "aggregate/mismatch_kl", family="mismatch", severity="critical",
        detector=excursion(1, bound("mismatch_surge"), floor=bound("mismatch_floor")),
        what="the engines' KL grew tenfold and past 1e-2",
        why="Gradient bursts and a fall of the reward follow within tens of steps in the published cases.",
        advice=_ENGINES,
        not_when="Mixture-of-experts models without routing replay, whose normal level is higher.",
        reference=_SPEED),
    Rule("mismatch_kl_growth", "aggregate/mismatch_kl", family="mismatch", transform="log",
        detector=mean_shift(1, lenient=True), suppressions=(SLOWLY,), what="the engines' KL grows",
        why="The surrogate objective loses its footing as mu leaves pi_old.", advice=_ENGINES,
        not_when="An engine or a precision changed on purpose at `since`.", reference=_SPEED),
    Rule("mismatch_abs_growth", "aggregate/mismatch_abs", family="mismatch", transform="log",
        detector=mean_shift(1, lenient=True), suppressions=(SLOWLY,),
        what="the engines' mean |log-probability difference| grows", why="The same, as TRL logs it.",
        advice=_ENGINES, not_when="An engine or a precision changed on purpose at `since`.",
        reference="TRL sampling/sampling_logp_difference/mean"),
    Rule("first_order_breakdown", "total/first_order_gap_p95", family="staleness", kind="tail",
        transform="log", detector=mean_shift(1),
        what="what the token-level surrogate leaves out of the sequence-level objective grows",
        why="The token-level objective is a first-order approximation; it holds while this gap is small.",
        advice="Fewer updates a batch, smaller steps, sequence-level masking.",
        not_when="Sequences whose length grows: the gap grows with it.",
        reference="arXiv 2512.01374 (MiniRL), section 2"),
    Rule("staleness_growth", "aggregate/staleness_lag", family="staleness",
        detector=mean_shift(1, min_frac=bound("staleness_frac")),
        what="sampled tokens are older than they used to be", why="Stale rollouts make ratios heavy-tailed.",
        advice="Check the rollout workers' queue; scale the learning rate by ESS.",
        not_when="A lag raised on purpose at `since`.", reference="arXiv 2602.17616 (VCPO)"),
    Rule("policy_kl_growth", "aggregate/policy_kl", family="staleness", transform="log",
        detector=mean_shift(1), what="the policy moves further from its sampling weights than it used to",
        why="Larger moves between sampling and the last update: what the clip range is there to bound.",
        advice="Fewer updates a batch, or a smaller learning rate.",
        not_when="A learning rate that is warming up.", reference="PPO, arXiv 1707.06347"),
    Rule("clip_high_growth", "aggregate/clip_high_frac", family="clip", transform="log",
        floor=bound("clip_floor"), detector=mean_shift(1, min_effect=bound("aggregate_growth")),
        what="more tokens are clipped at the upper side",
        why="Clipped tokens carry no gradient: exploration's side of the range is used up.",
        advice="A smaller learning rate, fewer epochs; or a wider upper range (DAPO).",
        not_when="A change of the clip range.", reference="DAPO, arXiv 2503.14476"),
    Rule("clip_low_growth", "aggregate/clip_low_frac", family="clip", transform="log",
        floor=bound("clip_floor"), detector=mean_shift(1, min_effect=bound("aggregate_growth")),
        what="more tokens are clipped at the lower side",
        why="The policy pushes tokens away faster than the range allows.",
        advice="A smaller learning rate, fewer epochs.", not_when="A change of the clip range.",
        reference="PPO, arXiv 1707.06347"),
    Rule("clip_saturation", "aggregate/clip_frac", family="clip", detector=threshold("clip_frac", 1),
        weight=0.5, what="more than a fifth of the tokens are clipped",
        why="Most of the batch does not teach any more.",
        advice="A smaller learning rate, fewer epochs a batch.", not_when="Objectives without a clip range.",
        reference="Hilton et al. 2021, arXiv 2110.00641"),
)  # fmt: skip
