"""THE table: every reading and every bound, with unit, direction and source. Nothing else in trimtab holds a threshold.

A reading's key is `<what>/<statistic>`. `docs/metrics.md` is generated from this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "BOUNDS",
    "READINGS",
    "WINDOW_TOKENS",
    "WINDOW_TRAJECTORIES",
    "Bound",
    "Definition",
    "bound",
    "definition",
]

Direction = Literal["up is bad", "down is bad", "neither"]

WINDOW_TOKENS = 2_000
"""Tokens a slice needs before a window is judged (house default: a p99 then rests on 20 tokens)."""

WINDOW_TRAJECTORIES = 30
"""Trajectories a slice needs before a window is judged (house default: the bootstrap resamples trajectories)."""

TAUS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Ratios of F(tau) = P(max(w, 1/w) > tau); the extreme-token measure of the R3 paper (arXiv 2510.11370)."""


@dataclass(frozen=True)
class Definition:
    """What a reading is. `unit`: nats, share, ratio, count, or 1 for a pure number."""

    what: str
    unit: str
    direction: Direction
    source: str


@dataclass(frozen=True)
class Bound:
    """A number some rule compares with. `source` is a citation or the words "house default"."""

    value: float
    unit: str
    derivation: str
    source: str


_RATIOS = {
    "mismatch": "pi_old / mu: the trainer's engine against the engine that sampled, at the same weights",
    "staleness": "pi_theta / pi_old: the policy now against the policy at sampling time",
    "total": "pi_theta / mu: the policy now against the engine that sampled",
    "drift": "pi_theta / pi_ref: the policy now against the frozen reference",
    "lagged_drift": "pi_t / pi_(t-K) on fixed probe transcripts: the policy's own change, free of a change of inputs",
}
_HOUSE = "house default"
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


READINGS: dict[str, Definition] = {
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
        "share of tokens with pi_theta/pi_old above 1.2", "share", "up is bad", "PPO, arXiv 1707.06347"
    ),
    "staleness/clip_low_frac": Definition(
        "share of tokens with pi_theta/pi_old below 0.8", "share", "up is bad", "PPO, arXiv 1707.06347"
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
        "house default",
    ),
    "ref_logprob/p05": Definition(
        "5th percentile of log pi_ref of the sampled tokens",
        "nats",
        "down is bad",
        "house default",
    ),
    "ref_logprob/p50": Definition(
        "median of log pi_ref of the sampled tokens", "nats", "down is bad", "house default"
    ),
    "ref_logprob/below_5_frac": Definition(
        "share of sampled tokens with log pi_ref below -5 nats",
        "share",
        "up is bad",
        "house default",
    ),
    "ref_logprob/below_10_frac": Definition(
        "share of sampled tokens with log pi_ref below -10 nats",
        "share",
        "up is bad",
        "house default",
    ),
    "alpha/frac": Definition(
        "share of gradient tokens written after a tool result: alpha of d = (1-alpha) d_text + alpha d_tool",
        "share",
        "neither",
        "Hidden-variance post, January 2026",
    ),
    "weight_mass/top_token_frac": Definition(
        "share of |A w| held by the top 1 % of tokens", "share", "up is bad", _HOUSE
    ),
    "weight_mass/top_trajectory_frac": Definition(
        "share of |A w| held by the top trajectory", "share", "up is bad", _HOUSE
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
    "aggregate/reward": Definition("mean reward of the sequences", "1", "down is bad", "every dashboard"),
    "aggregate/entropy": Definition(
        "mean entropy over all gradient tokens, or the trainer's own", "nats", "neither", "every dashboard"
    ),
    "aggregate/kl": Definition(
        "mean KL(pi_theta || pi_ref), k3 over all gradient tokens, or the trainer's own",
        "nats",
        "up is bad",
        "every dashboard",
    ),
    "aggregate/grad_norm": Definition(
        "gradient norm before clipping, as the trainer logs it", "1", "up is bad", "every dashboard"
    ),
    "aggregate/loss": Definition("loss as the trainer logs it", "1", "neither", "every dashboard"),
    "aggregate/length": Definition("mean gradient tokens a sequence", "count", "neither", "every dashboard"),
    "nonfinite/count": Definition(
        "NaN and infinities in a column at a step", "count", "up is bad", "house rule 2"
    ),
    "silence/steps": Definition("steps since a column last arrived", "count", "up is bad", "house rule 9"),
}

BOUNDS: dict[str, Bound] = {
    "arl": Bound(
        1_000.0,
        "windows between false alarms, each rule",
        "per-look level 1/arl of a one-sided Student-t prediction bound, so alarms of a stationary run of independent "
        "windows are at most one in arl windows a rule; autocorrelated windows alarm more often",
        "house default; confirmed by tests/detect and benchmarks",
    ),
    "baseline": Bound(
        10.0,
        "windows",
        "the t bound with 6 degrees of freedom is 5.2 scales at level 1/1000; fewer windows make it "
        "useless, more delay the first verdict",
        _HOUSE,
    ),
    "confirm": Bound(2.0, "consecutive windows", "one window may hold one wild trajectory", _HOUSE),
    "tail_growth": Bound(
        math.log(2.0),
        "log of a ratio",
        "smallest growth of the tail ratio worth a person's attention: 2x. A healthy, learning lab run (constrained arm, two "
        "seeds) let the p95 ratio grow by 1.8x over 100 steps",
        "house default; docs/evidence.md will calibrate it",
    ),
    "aggregate_growth": Bound(
        math.log(1.5),
        "log of a ratio",
        "smallest change of an aggregate worth a person's attention: 1.5x",
        _HOUSE,
    ),
    "reward_frac": Bound(
        0.05,
        "share of the mean reward",
        "smallest fall of the reward worth an alarm, so that a saturated reward of no scatter does not alarm at 0.1 %",
        "house default",
    ),
    "lagged_growth": Bound(
        math.log(2.0), "log of a ratio", "smallest growth of lagged drift worth attention: 2x", _HOUSE
    ),
    "clear_frac": Bound(
        0.5,
        "share of the bound",
        "an alarm clears when the excess falls under half of what raised it",
        _HOUSE,
    ),
    "failed_frac": Bound(
        0.1,
        "share of steps at which the monitor itself failed",
        "above it a quiet run is blind, not healthy",
        "house default",
    ),
    "silence": Bound(
        3.0, "times the longest gap seen so far", "a column sampled at a cadence has gaps of its own", _HOUSE
    ),
    "silent_rank": Bound(
        20.0,
        "steps",
        "how far a rank's record may lie behind the others' before the run counts as blind there",
        _HOUSE,
    ),
    "zero_drift": Bound(
        3.0,
        "windows",
        "drift of exactly zero in so many windows is a wiring mistake or a frozen policy",
        _HOUSE,
    ),
    "silence_unknown": Bound(
        100.0,
        "steps",
        "allowed absence of a column seen fewer than three times, whose cadence is unknown",
        _HOUSE,
    ),
    "near_support_5": Bound(
        -5.0,
        "nats",
        "exp(-5) = 0.7 %: the reference gives the token less than one chance in 148",
        "house default",
    ),
    "near_support_10": Bound(-10.0, "nats", "exp(-10) = 0.005 %", "house default"),
    "tail_floor": Bound(
        1e-4,
        "nats",
        "the noise of a float32 log-softmax recomputed in another order (measured 5.6e-6 to 9.8e-6) with a margin of ten; "
        "a text tail below it is raised to it before a ratio is taken",
        _HOUSE,
    ),
    "clip": Bound(0.2, "1", "PPO's clip range", "arXiv 1707.06347"),
    "mismatch_small": Bound(
        0.05, "nats, p99 of |mismatch|", "tokens sampled by mu stand for tokens of pi_old within 5 %", _HOUSE
    ),
}


def definition(key: str) -> Definition:
    """The catalog row of a reading; KeyError for a key no measure may emit."""
    return READINGS[key]


def bound(name: str) -> float:
    """A bound's value.

    >>> bound("baseline")
    10.0
    """
    return BOUNDS[name].value
