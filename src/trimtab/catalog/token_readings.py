"""Readings of tokens: log-ratios, weights, KL, entropy, support, growth, and of the step stream itself.

Most are a product: each of five log-ratios has most of the statistics of `STATISTICS`.
"""

from __future__ import annotations

from typing import NamedTuple

from trimtab.catalog.definitions import UNCALIBRATED, Definition, Direction

TAUS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Ratios of F(tau) = P(max(w, 1/w) > tau); the extreme-token measure of the R3 paper (arXiv 2510.11370)."""

LAG_BUCKETS = {"lag_0": "0", "lag_1": "1", "lag_2_3": "2 or 3", "lag_4_up": "4 or more"}
"""Buckets of the age of a token in policy versions."""

LOG_RATIOS = {
    "mismatch": "pi_old / mu",
    "staleness": "pi_theta / pi_old",
    "total": "pi_theta / mu",
    "drift": "pi_theta / pi_ref",
    "lagged_drift": "pi_t / pi_(t-K) on fixed probe transcripts",
}
"""Name -> w, the ratio whose logarithm is read. mu: the engine that sampled; pi_old: the trainer's engine at
the same weights; pi_theta: the policy now; pi_ref: the frozen reference."""


class Statistic(NamedTuple):
    """Statistic of a log-ratio; `{w}` and `{name}` in `what` stand for the ratio and its name."""

    what: str
    unit: str
    direction: Direction
    source: str
    ratios: tuple[str, ...]


_POST = "Hidden-variance post, January 2026"
_R3 = "arXiv 2510.11370 (R3)"
_M2PO = "arXiv 2510.01161 (M2PO)"
_LOO = "Vehtari et al. 2024, arXiv 1507.02646"
_HILL = "Hill 1975; median over 8 m from M/4 to M = min(0.2 n, 3 sqrt n)"
_GPD = "Zhang & Stephens 2009; the fit of arXiv 1507.02646, appendix G"
_KS = "Smirnov 1948; design effect of Kish 1965"
_MAIN = "; in all, text and post_tool"
_ALL = tuple(LOG_RATIOS)
_BATCH = _ALL[:4]
_WEIGHTS = ("mismatch", "staleness", "total")
_SAMPLER = ("mismatch", "total")
_TAILS = {
    "p50": "median", "p90": "90th percentile", "p95": "95th percentile", "p99": "99th percentile",
    "p999": "99.9th percentile", "max": "largest value",
}  # fmt: skip
_SHIFTS: tuple[tuple[str, str, str, str], ...] = (
    ("shift_ks", "largest difference of the two CDFs of |log-ratio|", "share", _KS),
    ("shift_ks_level", "the same over its 5 % critical value at the effective sizes; above 1 is significant", "ratio", _KS),
    ("shift_w1", "area between the two CDFs of |log-ratio| (Wasserstein-1)", "nats", "Vallender 1974"),
    ("shift_tail_mass", "change of the share of tokens beyond the earlier window's p95", "difference of shares", UNCALIBRATED),
    ("shift_tail_mass_p99", "change of the share of tokens beyond the earlier window's p99", "difference of shares", UNCALIBRATED),
)  # fmt: skip

STATISTICS: dict[str, Statistic] = {
    **{key: Statistic(f"{text} of |log({{w}})|", "nats", "up is bad", _POST, _ALL) for key, text in _TAILS.items()},
    **{
        f"exceed_{tau:g}": Statistic(
            f"F({tau:g}): share of tokens with {{w}} above {tau:g} or below 1/{tau:g}", "share", "up is bad", _R3, _ALL
        )
        for tau in TAUS
    },
    "token_ess_frac": Statistic("Kish ESS over n of raw token weights", "share", "down is bad", "Kish 1965", _WEIGHTS),
    "token_spread": Statistic(
        "standard deviation s of the per-token log-ratio; sequence ESS/n is about exp(-T s^2)", "nats", "up is bad",
        "derived for iid normal log-ratios", _WEIGHTS,
    ),
    "second_moment": Statistic("E_mu[w^2] of token weights; 1 + chi-square", "1", "up is bad", _M2PO, _SAMPLER),
    "sequence_ess_frac": Statistic(
        "Kish ESS over n of raw sequence weights (products over tokens)", "share", "down is bad", "arXiv 2602.17616 (VCPO)", _SAMPLER
    ),
    "sequence_length": Statistic("mean tokens with gradient a sequence, T of the law above", "count", "neither", "-", _SAMPLER),
    "khat": Statistic("Pareto shape of the upper tail of w", "1", "up is bad", _LOO, _SAMPLER),
    "khat_inverse": Statistic("Pareto shape of the upper tail of 1/w (w near 0)", "1", "up is bad", _LOO, _SAMPLER),
    "khat_bound": Statistic("min(1 - 1/log10 n, 0.7): above it, k-hat says the mean is unreliable", "1", "neither", _LOO, _SAMPLER),
    "hill": Statistic(f"Hill's tail index of |log-ratio| of {{name}}: from 0.5 on no variance, from 1 on no mean{_MAIN}", "1", "up is bad", _HILL, _BATCH),
    "gpd_shape": Statistic(f"generalised-Pareto shape of |log-ratio| of {{name}}; 0 is an exponential tail{_MAIN}", "1", "up is bad", _GPD, _BATCH),
    "hill_w": Statistic(f"Hill's tail index of w of {{name}}{_MAIN}", "1", "up is bad", _HILL, _SAMPLER),
    "hill_inverse": Statistic(f"Hill's tail index of 1/w of {{name}}{_MAIN}", "1", "up is bad", _HILL, _SAMPLER),
    "chi2": Statistic(
        f"E_mu[w^2] - 1 of raw token weights, the plug-in for E_mu[w] = 1; may be negative; interval{_MAIN[1:]}", "1", "up is bad", _M2PO, _SAMPLER
    ),
    **{
        f"{key}{suffix}": Statistic(f"{{name}}, against the {against} window of the slice: {what}{_MAIN}", unit, "up is bad", source, _BATCH)
        for suffix, against in (("", "previous"), ("_first", "first"))
        for key, what, unit, source in _SHIFTS
    },
    "stretch": Statistic(f"p99/p50 of |log-ratio| of {{name}} over the same of the slice's first window{_MAIN}", "ratio", "up is bad", UNCALIBRATED, _BATCH),
    "n_eff": Statistic(
        f"tokens of {{name}} over the design effect of its trajectories on the CDF of |log-ratio|{_MAIN}", "count", "neither", "Kish 1965", _BATCH
    ),
    **{
        f"{bucket}_p95": Statistic(
            f"95th percentile of |log-ratio| of {{name}} of tokens {versions} policy versions old", "nats", "up is bad", UNCALIBRATED, ("staleness", "total")
        )
        for bucket, versions in LAG_BUCKETS.items()
    },
}  # fmt: skip
"""Statistic -> what it is, and the log-ratios that have it. The key of a reading is
`<log-ratio>/<statistic>`."""


def _product() -> dict[str, Definition]:
    return {
        f"{name}/{key}": Definition(row.what.format(w=w, name=name), *row[1:4])
        for name, w in LOG_RATIOS.items()
        for key, row in STATISTICS.items()
        if name in row.ratios
    }


TOKENS: dict[str, Definition] = {
    **_product(),
    "step/total/p95": Definition("95th percentile of |log(pi_theta / mu)| of one step; of mismatch or staleness where that is all there is of it", "nats", "up is bad", _POST),
    "step/total/sequence_ess_frac": Definition("Kish ESS over n of raw sequence weights of one step", "share", "down is bad", "arXiv 2602.17616 (VCPO)"),
    "step/mismatch/p95": Definition("95th percentile of |log(pi_old / mu)| of one step", "nats", "up is bad", "benchmarks/token_faults.py"),
    "step/mismatch/above_3_frac": Definition("share of tokens of one step with |log(pi_old / mu)| above 3 nats", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/mismatch/shifted_frac": Definition("of one step's sequences whose log mu and log pi_old disagree, share that agrees far better when shifted by one token", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/update/p95": Definition("95th percentile of |log(pi_(t+1) / pi_t)| of one update, on a sample of the step's tokens", "nats", "up is bad", "benchmarks/token_faults.py"),
    "step/lag/mean": Definition("mean age of one step's gradient tokens in policy versions", "versions", "up is bad", "benchmarks/token_faults.py"),
    "step/mask/result_frac": Definition("share of one step's tool results whose first token receives gradient", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/mask/silent_frac": Definition("share of one step's sequences with a tool result that have no token with gradient after the last one", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/support/below_5_frac": Definition("share of one step's tokens that the reference gives less than exp(-5)", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/tools/error_frac": Definition("share of one step's calls of a tool that failed", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/groups/solved_frac": Definition("share of one step's groups whose rollouts all have the same high reward", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/groups/hopeless_frac": Definition("share of one step's groups whose rollouts all have the same low reward", "share", "up is bad", "benchmarks/token_faults.py"),
    "step/reward_part/opposed": Definition("smaller z-score of the part of the reward that rises and the part that falls, last five steps against thirty before", "1", "up is bad", "benchmarks/token_faults.py"),
    "policy_lag/mean": Definition("mean age of the gradient tokens in policy versions", "versions", "up is bad", "AReaL, arXiv 2505.24298"),
    "policy_lag/max": Definition("greatest age of a gradient token in policy versions", "versions", "up is bad", "AReaL, arXiv 2505.24298"),
    "total/first_order_gap_mean": Definition("mean over sequences of |prod w - 1 - sum(w - 1)|: what the token-level surrogate leaves out", "1", "up is bad", "arXiv 2512.01374 (MiniRL), section 2"),
    "total/first_order_gap_p95": Definition("95th percentile over sequences of the same gap", "1", "up is bad", "arXiv 2512.01374 (MiniRL), section 2"),
    "staleness/clip_high_frac": Definition("share of tokens with pi_theta/pi_old above 1 + epsilon (the trainer's clip_range, else 0.2)", "share", "up is bad", "PPO, arXiv 1707.06347"),
    "staleness/clip_low_frac": Definition("share of tokens with pi_theta/pi_old below 1 - epsilon (the trainer's clip_range, else 0.2)", "share", "up is bad", "PPO, arXiv 1707.06347"),
    "drift/second_moment_ref": Definition("E_ref[w^2], estimated as the mean of w under pi_theta", "1", "up is bad", "docs/architecture.md, log-ratio table"),
    "drift/concentration": Definition(
        "(sum w)^2 / (n sum w^2) of drift weights on tokens sampled by pi_theta: the source's ESS curve, no sampling diagnostic", "share", "down is bad", "Hidden-variance post, January 2026",
    ),
    "kl/rollout_old/k1": Definition("KL(mu || pi_old), mean of -log(pi_old/mu); can be negative", "nats", "up is bad", "Schulman 2020"),
    "kl/rollout_old/k3": Definition("KL(mu || pi_old), mean of w - 1 - log w", "nats", "up is bad", "Schulman 2020"),
    "kl/rollout_theta/k1": Definition("KL(mu || pi_theta), mean of -log(pi_theta/mu)", "nats", "up is bad", "Schulman 2020"),
    "kl/rollout_theta/k3": Definition("KL(mu || pi_theta), mean of w - 1 - log w", "nats", "up is bad", "Schulman 2020"),
    "kl/theta_ref/k1": Definition("KL(pi_theta || pi_ref), mean of log(pi_theta/pi_ref)", "nats", "up is bad", "Schulman 2020"),
    "kl/theta_ref/k3": Definition("KL(pi_theta || pi_ref), mean of 1/w - 1 + log w", "nats", "up is bad", "Schulman 2020"),
    "entropy/mean": Definition("mean entropy of the next-token distribution", "nats", "neither", "-"),
    "ref_logprob/p01": Definition("1st percentile of log pi_ref of the sampled tokens", "nats", "down is bad", "default, not calibrated"),
    "ref_logprob/p05": Definition("5th percentile of log pi_ref of the sampled tokens", "nats", "down is bad", "default, not calibrated"),
    "ref_logprob/p50": Definition("median of log pi_ref of the sampled tokens", "nats", "down is bad", "default, not calibrated"),
    "ref_logprob/below_5_frac": Definition("share of sampled tokens with log pi_ref below -5 nats", "share", "up is bad", "default, not calibrated"),
    "ref_logprob/below_10_frac": Definition("share of sampled tokens with log pi_ref below -10 nats", "share", "up is bad", "default, not calibrated"),
    "alpha/frac": Definition("share of gradient tokens written after a tool result: alpha of d = (1-alpha) d_text + alpha d_tool", "share", "neither", "Hidden-variance post, January 2026"),
    "weight_mass/top_token_frac": Definition("share of |A w| held by the top 1 % of tokens", "share", "up is bad", UNCALIBRATED),
    "weight_mass/top_trajectory_frac": Definition("share of |A w| held by the top trajectory", "share", "up is bad", UNCALIBRATED),
    "tail_ratio/p99": Definition("p99 of |drift| after a tool over p99 of |drift| in text, same steps", "ratio", "up is bad", "docs/architecture.md, Growth"),
    "tail_ratio/p95": Definition("p95 of |drift| after a tool over p95 of |drift| in text, same steps", "ratio", "up is bad", "docs/architecture.md, Growth"),
    "nonfinite/count": Definition("NaN and infinities in a column at a step", "count", "up is bad", "house rule 2"),
    "silence/steps": Definition("steps since a column last arrived", "count", "up is bad", "house rule 9"),
    "staleness/clip_active_high_frac": Definition(
        "share of tokens whose gradient the clip removes above: A > 0 and pi_theta/pi_old > 1 + the trainer's epsilon", "share", "up is bad", "PPO, arXiv 1707.06347, eq. 7",
    ),
    "staleness/clip_active_low_frac": Definition(
        "share of tokens whose gradient the clip removes below: A < 0 and pi_theta/pi_old < 1 - the trainer's epsilon", "share", "up is bad", "PPO, arXiv 1707.06347, eq. 7",
    ),
}  # fmt: skip
