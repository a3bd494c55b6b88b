"""Readings of tokens: log-ratios, weights, KL, entropy, support, growth, and of the step stream itself."""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Definition

TAUS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Ratios of F(tau) = P(max(w, 1/w) > tau); the extreme-token measure of the R3 paper (arXiv 2510.11370)."""

_RATIOS = {
    "mismatch": "pi_old / mu: the trainer's engine against the engine that sampled, at the same weights",
    "staleness": "pi_theta / pi_old: the policy now against the policy at sampling time",
    "total": "pi_theta / mu: the policy now against the engine that sampled",
    "drift": "pi_theta / pi_ref: the policy now against the frozen reference",
    "lagged_drift": "pi_t / pi_(t-K) on fixed probe transcripts: the policy's own change, free of a change of inputs",
}
_LOO = "Vehtari et al. 2024, arXiv 1507.02646"


def _tails() -> dict[str, Definition]:
    rows: dict[str, Definition] = {}
    for name, meaning in _RATIOS.items():
        for stat, text in (
            ("p50", "median"),
            ("p90", "90th percentile"),
            ("p95", "95th percentile"),
            ("p99", "99th percentile"),
            ("p999", "99.9th percentile"),
            ("max", "largest value"),
        ):
            rows[f"{name}/{stat}"] = Definition(
                f"{text} of |log({meaning.split(':')[0]})|",
                "nats",
                "up is bad",
                "Hidden-variance post, January 2026",
            )
        for tau in TAUS:
            rows[f"{name}/exceed_{tau:g}"] = Definition(
                f"F({tau:g}): share of tokens with {meaning.split(':')[0]} above {tau:g} or below 1/{tau:g}",
                "share",
                "up is bad",
                "arXiv 2510.11370 (R3)",
            )
    return rows


def _weights() -> dict[str, Definition]:
    rows: dict[str, Definition] = {}
    for name in ("mismatch", "staleness", "total"):
        rows |= {
            f"{name}/token_ess_frac": Definition(
                "Kish ESS over n of raw token weights", "share", "down is bad", "Kish 1965"
            ),
            f"{name}/token_spread": Definition(
                "standard deviation s of the per-token log-ratio; sequence ESS/n is about exp(-T s^2)",
                "nats",
                "up is bad",
                "derived for iid normal log-ratios",
            ),
        }
    for name in ("mismatch", "total"):
        rows |= {
            f"{name}/second_moment": Definition(
                "E_mu[w^2] of token weights; 1 + chi-square", "1", "up is bad", "arXiv 2510.01161 (M2PO)"
            ),
            f"{name}/sequence_ess_frac": Definition(
                "Kish ESS over n of raw sequence weights (products over tokens)",
                "share",
                "down is bad",
                "arXiv 2602.17616 (VCPO)",
            ),
            f"{name}/sequence_length": Definition(
                "mean tokens with gradient a sequence, T of the law above", "count", "neither", "-"
            ),
            f"{name}/khat": Definition("Pareto shape of the upper tail of w", "1", "up is bad", _LOO),
            f"{name}/khat_inverse": Definition(
                "Pareto shape of the upper tail of 1/w (w near 0)", "1", "up is bad", _LOO
            ),
            f"{name}/khat_bound": Definition(
                "min(1 - 1/log10 n, 0.7): above it, k-hat says the mean is unreliable", "1", "neither", _LOO
            ),
        }
    return rows


TOKENS: dict[str, Definition] = {
    **_tails(),
    **_weights(),
    "total/first_order_gap_mean": Definition(
        "mean over sequences of |prod w - 1 - sum(w - 1)|: what the token-level surrogate leaves out",
        "1",
        "up is bad",
        "arXiv 2512.01374 (MiniRL), section 2",
    ),
    "total/first_order_gap_p95": Definition(
        "95th percentile over sequences of the same gap",
        "1",
        "up is bad",
        "arXiv 2512.01374 (MiniRL), section 2",
    ),
    "staleness/clip_high_frac": Definition(
        "share of tokens with pi_theta/pi_old above 1 + epsilon (the trainer's clip_range, else 0.2)",
        "share",
        "up is bad",
        "PPO, arXiv 1707.06347",
    ),
    "staleness/clip_low_frac": Definition(
        "share of tokens with pi_theta/pi_old below 1 - epsilon (the trainer's clip_range, else 0.2)",
        "share",
        "up is bad",
        "PPO, arXiv 1707.06347",
    ),
    "drift/second_moment_ref": Definition(
        "E_ref[w^2], estimated as the mean of w under pi_theta",
        "1",
        "up is bad",
        "docs/architecture.md, log-ratio table",
    ),
    "drift/concentration": Definition(
        "(sum w)^2 / (n sum w^2) of drift weights on tokens sampled by pi_theta: the source's ESS curve, no sampling diagnostic",
        "share",
        "down is bad",
        "Hidden-variance post, January 2026",
    ),
    "kl/rollout_old/k1": Definition(
        "KL(mu || pi_old), mean of -log(pi_old/mu); can be negative", "nats", "up is bad", "Schulman 2020"
    ),
    "kl/rollout_old/k3": Definition(
        "KL(mu || pi_old), mean of w - 1 - log w", "nats", "up is bad", "Schulman 2020"
    ),
    "kl/rollout_theta/k1": Definition(
        "KL(mu || pi_theta), mean of -log(pi_theta/mu)", "nats", "up is bad", "Schulman 2020"
    ),
    "kl/rollout_theta/k3": Definition(
        "KL(mu || pi_theta), mean of w - 1 - log w", "nats", "up is bad", "Schulman 2020"
    ),
    "kl/theta_ref/k1": Definition(
        "KL(pi_theta || pi_ref), mean of log(pi_theta/pi_ref)", "nats", "up is bad", "Schulman 2020"
    ),
    "kl/theta_ref/k3": Definition(
        "KL(pi_theta || pi_ref), mean of 1/w - 1 + log w", "nats", "up is bad", "Schulman 2020"
    ),
    "entropy/mean": Definition("mean entropy of the next-token distribution", "nats", "neither", "-"),
    "ref_logprob/p01": Definition(
        "1st percentile of log pi_ref of the sampled tokens",
        "nats",
        "down is bad",
        "default, not calibrated",
    ),
    "ref_logprob/p05": Definition(
        "5th percentile of log pi_ref of the sampled tokens",
        "nats",
        "down is bad",
        "default, not calibrated",
    ),
    "ref_logprob/p50": Definition(
        "median of log pi_ref of the sampled tokens", "nats", "down is bad", "default, not calibrated"
    ),
    "ref_logprob/below_5_frac": Definition(
        "share of sampled tokens with log pi_ref below -5 nats",
        "share",
        "up is bad",
        "default, not calibrated",
    ),
    "ref_logprob/below_10_frac": Definition(
        "share of sampled tokens with log pi_ref below -10 nats",
        "share",
        "up is bad",
        "default, not calibrated",
    ),
    "alpha/frac": Definition(
        "share of gradient tokens written after a tool result: alpha of d = (1-alpha) d_text + alpha d_tool",
        "share",
        "neither",
        "Hidden-variance post, January 2026",
    ),
    "weight_mass/top_token_frac": Definition(
        "share of |A w| held by the top 1 % of tokens", "share", "up is bad", UNCALIBRATED
    ),
    "weight_mass/top_trajectory_frac": Definition(
        "share of |A w| held by the top trajectory", "share", "up is bad", UNCALIBRATED
    ),
    "tail_ratio/p99": Definition(
        "p99 of |drift| after a tool over p99 of |drift| in text, same steps",
        "ratio",
        "up is bad",
        "docs/architecture.md, Growth",
    ),
    "tail_ratio/p95": Definition(
        "p95 of |drift| after a tool over p95 of |drift| in text, same steps",
        "ratio",
        "up is bad",
        "docs/architecture.md, Growth",
    ),
    "nonfinite/count": Definition(
        "NaN and infinities in a column at a step", "count", "up is bad", "house rule 2"
    ),
    "silence/steps": Definition("steps since a column last arrived", "count", "up is bad", "house rule 9"),
}
