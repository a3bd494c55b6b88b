"""Rules on the two engines' disagreement, on staleness and on clipping."""

from __future__ import annotations

from trimtab.catalog import bound
from trimtab.detect.rules.rule import Rule, Suppression, beyond, change, excursion

_SLOWLY = Suppression("aggregate/reward", 1, slow=64)
_ENGINES = (
    "Compare the engines' precision, sampling parameters and attention kernels; correct with sequence-level masking, or "
    "replay routes for a mixture of experts."
)
_SPEED = "richardli.xyz/rl-collapse; facts: vllm-kl rises before the reward falls"
_VERL = "verl docs, rollout_corr (the number there is for clamped weights; here the weights are raw)"

MISMATCH_RULES: tuple[Rule, ...] = (
    Rule(
        "mismatch_ess_low", "mismatch/token_ess_frac", "all", "tail", "mismatch", "identity", beyond("ess_frac", -1), "critical",
        "the effective sample size of mismatch weights is under the bound",
        "Few tokens carry the whole correction: its variance is out of hand.", _ENGINES,
        "Windows of few tokens.", _VERL, weight=0.5,
    ),
    Rule(
        "mismatch_ess_falling", "mismatch/token_ess_frac", "all", "tail", "mismatch", "identity", change(-1), "warning",
        "the effective sample size of mismatch weights falls",
        "A sharp fall of ESS came before collapse in asynchronous training.", _ENGINES,
        "A change of lag or engine made on purpose at `since`.", "arXiv 2602.17616 (VCPO)",
    ),
    Rule(
        "khat_high", "mismatch/khat", "all", "tail", "mismatch", "identity", beyond("khat", 1), "info",
        "the tail of mismatch weights is too heavy for a mean to be relied on",
        "Above the bound an importance-weighted mean converges too slowly to be of use.",
        "Truncate or mask at sequence level; find the tokens in the exemplars.",
        "Weights that hardly vary: their tail has a shape even where it does not matter, so this is information; ESS says whether it does.", "Vehtari et al. 2024, arXiv 1507.02646", weight=0.5,
    ),
    Rule(
        "khat_rising", "mismatch/khat", "all", "tail", "mismatch", "identity", change(1), "warning",
        "the tail of mismatch weights grows heavier",
        "The weights' distribution changes shape before their mean does.", _ENGINES,
        "Windows whose size changed.", "Vehtari et al. 2024, arXiv 1507.02646",
    ),
    Rule(
        "mismatch_tail_growth", "mismatch/p99", "all", "tail", "mismatch", "log", change(1, lenient=True), "warning",
        "p99 of |log pi_old - log mu| grows", "The engines disagree more and more on the tokens that matter most.", _ENGINES,
        "An engine or a precision changed on purpose at `since`.", _SPEED, excuses=(_SLOWLY,),
    ),
    Rule(
        "mismatch_surge", "aggregate/mismatch_kl", "all", "aggregate", "mismatch", "identity",
        excursion(1, bound("mismatch_surge"), floor=bound("mismatch_floor")), "critical",
        "the engines' KL grew tenfold and past 1e-2",
        "Gradient bursts and a fall of the reward follow within tens of steps in the published cases.", _ENGINES,
        "Mixture-of-experts models without routing replay, whose normal level is higher.", _SPEED,
    ),
    Rule(
        "mismatch_kl_growth", "aggregate/mismatch_kl", "all", "aggregate", "mismatch", "log", change(1, lenient=True), "warning",
        "the engines' KL grows", "The surrogate objective loses its footing as mu leaves pi_old.", _ENGINES,
        "An engine or a precision changed on purpose at `since`.", _SPEED, excuses=(_SLOWLY,),
    ),
    Rule(
        "mismatch_abs_growth", "aggregate/mismatch_abs", "all", "aggregate", "mismatch", "log", change(1, lenient=True), "warning",
        "the engines' mean |log-probability difference| grows", "The same, as TRL logs it.", _ENGINES,
        "An engine or a precision changed on purpose at `since`.", "TRL sampling/sampling_logp_difference/mean", excuses=(_SLOWLY,),
    ),
    Rule(
        "first_order_breakdown", "total/first_order_gap_p95", "all", "tail", "staleness", "log", change(1), "warning",
        "what the token-level surrogate leaves out of the sequence-level objective grows",
        "The token-level objective is a first-order approximation; it holds while this gap is small.",
        "Fewer updates a batch, smaller steps, sequence-level masking.",
        "Sequences whose length grows: the gap grows with it.", "arXiv 2512.01374 (MiniRL), section 2",
    ),
    Rule(
        "staleness_growth", "aggregate/staleness_lag", "all", "aggregate", "staleness", "identity",
        change(1, min_frac=bound("staleness_frac")), "warning",
        "sampled tokens are older than they used to be", "Stale rollouts make ratios heavy-tailed.",
        "Check the rollout workers' queue; scale the learning rate by ESS.",
        "A lag raised on purpose at `since`.", "arXiv 2602.17616 (VCPO)",
    ),
    Rule(
        "policy_kl_growth", "aggregate/policy_kl", "all", "aggregate", "staleness", "log", change(1), "warning",
        "the policy moves further from its sampling weights than it used to",
        "Larger moves between sampling and the last update: what the clip range is there to bound.",
        "Fewer updates a batch, or a smaller learning rate.", "A learning rate that is warming up.", "PPO, arXiv 1707.06347",
    ),
    Rule(
        "clip_high_growth", "aggregate/clip_high_frac", "all", "aggregate", "clip", "log",
        change(1, min_effect=bound("aggregate_growth")), "warning",
        "more tokens are clipped at the upper side", "Clipped tokens carry no gradient: exploration's side of the range is used up.",
        "A smaller learning rate, fewer epochs; or a wider upper range (DAPO).",
        "A change of the clip range.", "DAPO, arXiv 2503.14476", floor=bound("clip_floor"),
    ),
    Rule(
        "clip_low_growth", "aggregate/clip_low_frac", "all", "aggregate", "clip", "log",
        change(1, min_effect=bound("aggregate_growth")), "warning",
        "more tokens are clipped at the lower side", "The policy pushes tokens away faster than the range allows.",
        "A smaller learning rate, fewer epochs.", "A change of the clip range.", "PPO, arXiv 1707.06347", floor=bound("clip_floor"),
    ),
    Rule(
        "clip_saturation", "aggregate/clip_frac", "all", "aggregate", "clip", "identity", beyond("clip_frac", 1), "warning",
        "more than a fifth of the tokens are clipped", "Most of the batch does not teach any more.",
        "A smaller learning rate, fewer epochs a batch.", "Objectives without a clip range.", "Hilton et al. 2021, arXiv 2110.00641",
        weight=0.5,
    ),
)  # fmt: skip
