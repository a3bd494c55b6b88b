"""Readings of the policy behind the tokens: routes, rare tokens, entropy at tool borders, gradients,
distinguishability."""

from __future__ import annotations

from trimtab.catalog.definitions import UNCALIBRATED, Definition

BOUNDARY_TOKENS = 8
"""Tokens before a call ends and after its result whose entropies are compared (default, not calibrated)."""

PROB_BANDS = {"le_1e-3": (0.0, 1e-3), "1e-3_2e-2": (1e-3, 2e-2), "2e-2_1e-1": (2e-2, 1e-1)}
"""Name -> (above, up to and including) of mu, the sampler's probability of the token ("When Speed Kills
Stability")."""

_SPEED = "When Speed Kills Stability (Liu, Li et al. 2025)"
_R3 = "arXiv 2510.11370 (R3)"
_ARPO = "arXiv 2507.19849 (ARPO)"
_RAGEN = "RAGEN-2, arXiv 2604.06268"

POLICY: dict[str, Definition] = {
    "routing/agree_frac": Definition("share of the trainer's experts that the engine chose too, |A and B| / K, mean over tokens and layers", "share", "down is bad", _R3),
    "routing/same_set_frac": Definition("share of (token, layer) with exactly the same experts", "share", "down is bad", _R3),
    "routing/worst_layer_frac": Definition("|A and B| / K of the layer where it is smallest; the reason names the layer", "share", "down is bad", _R3),
    "routing/any_layer_changed_frac": Definition("share of tokens with another set of experts in at least one layer", "share", "up is bad", _R3),
    "routing/mismatch_p95_changed": Definition("p95 of |log(pi_old / mu)| of tokens re-routed in at least one layer", "nats", "up is bad", _R3),
    "routing/mismatch_p95_same": Definition("p95 of |log(pi_old / mu)| of tokens routed the same in every layer", "nats", "up is bad", _R3),
    "entropy/p05": Definition("5th percentile of the next-token entropy; in all, text and post_tool", "nats", "neither", UNCALIBRATED),
    "entropy/p95": Definition("95th percentile of the next-token entropy; in all, text and post_tool", "nats", "neither", UNCALIBRATED),
    "entropy/before_call": Definition(f"mean entropy of the last {BOUNDARY_TOKENS} tokens before a call ends", "nats", "neither", _ARPO),
    "entropy/after_tool": Definition(f"mean entropy of the first {BOUNDARY_TOKENS} tokens after a tool result", "nats", "neither", _ARPO),
    "entropy/after_tool_jump": Definition("entropy after a tool result less that before its call, mean over the calls that have both", "nats", "neither", _ARPO),
    "mismatch/p95_prob_le_1e-3": Definition("p95 of |log(pi_old / mu)| of tokens with mu at most 1e-3; in all, text and post_tool", "nats", "up is bad", _SPEED),
    "mismatch/p95_prob_1e-3_2e-2": Definition("p95 of |log(pi_old / mu)| of tokens with mu in (1e-3, 2e-2]; in all, text and post_tool", "nats", "up is bad", _SPEED),
    "mismatch/p95_prob_2e-2_1e-1": Definition("p95 of |log(pi_old / mu)| of tokens with mu in (2e-2, 1e-1]; in all, text and post_tool", "nats", "up is bad", _SPEED),
    "gradient/snr": Definition("|mean g|^2 over tr cov(g) / n of the n per-trajectory gradients g: signal over the noise of their mean; 1 is what noise alone gives", "1", "down is bad", "verl PR #5842; McCandlish et al. 2018, arXiv 1812.06162"),
    "gradient/top_trajectory_frac": Definition("share of sum |g|^2 held by the top trajectory", "share", "up is bad", UNCALIBRATED),
    "gradient/effective_trajectories": Definition("participation ratio (sum |g|^2)^2 / sum |g|^4", "count", "down is bad", UNCALIBRATED),
    "gradient/variance_share": Definition("total variance of the slice's part of g over the sum of that of all slices", "share", "neither", "Hidden-variance post, January 2026"),
    "gradient/token_share": Definition("share of gradient tokens in the slice, to hold against its variance share", "share", "neither", UNCALIBRATED),
    "distinguish/retrieval_accuracy": Definition("share of responses that their own prompt explains best, of all prompts of the batch", "share", "down is bad", _RAGEN),
    "distinguish/mutual_information": Definition("mean over responses of S[own] - logmeanexp over prompts of S, S the mean log-probability a token", "nats a token", "down is bad", _RAGEN),
    "distinguish/mutual_information_z": Definition("the same difference over the running standard deviation (EMA 0.9) of the marginal term", "1", "down is bad", _RAGEN),
    "distinguish/ngram_retrieval_accuracy": Definition("share of responses whose most similar other response, by hashed token pairs, answers the same prompt, of 16 responses a batch at most; the reason gives chance", "share", "down is bad", "default, not calibrated, after RAGEN-2"),
}  # fmt: skip
