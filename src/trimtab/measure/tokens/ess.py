"""Effective sample size (Kish) of raw weights, a token and a sequence, and the per-token spread.

The mistake it prevents: an ESS of clamped weights, whose floor makes the alarm unreachable, and a sequence
ESS read without its length: for iid N(., s^2) log-ratios it is exp(-T s^2), so a fixed threshold is a length
threshold.

Who carries the update: concentration of drift weights, and the share of |A w| held by few tokens or one
trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.catalog import bound
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value


def kish_frac(log_mean: float, log_mean_square: float) -> float:
    """ESS/n = (mean w)^2 / mean w^2 from the logs of the two means.

    >>> kish_frac(0.0, 0.0)
    1.0
    """
    return math.exp(min(0.0, 2.0 * log_mean - log_mean_square)) if log_mean > -math.inf else math.nan


def ess(state: SliceState) -> Iterator[Value]:
    """`token_ess_frac`, `token_spread`, and for mismatch and total `sequence_ess_frac`, `sequence_length`."""
    for name, ratio in RATIOS.items():
        sketch = state.summaries.get(f"{name}/sketch")
        if sketch is None or "ess" not in ratio.valid:
            continue
        n = sketch.count
        yield Value(f"{name}/token_spread", math.sqrt(max(0.0, sketch.variance())) if n else math.nan, n)
        reason = _blocked(state, name)
        value = math.nan if reason else kish_frac(sketch.log_mean_exp(1), sketch.log_mean_exp(2))
        yield Value(f"{name}/token_ess_frac", value, n, reason=reason)
        sequences = state.summaries.get(f"{name}/sequence")
        if sequences is not None:
            yield Value(f"{name}/sequence_ess_frac", sequences.ess_frac(), state.n_sequences)
            length = n / state.n_sequences if state.n_sequences else math.nan
            yield Value(f"{name}/sequence_length", length, state.n_sequences)


def _blocked(state: SliceState, name: str) -> str:
    """Staleness ESS assumes tokens of pi_old; they are of mu, so mismatch must be observed small or zero by
    construction."""
    if name != "staleness":
        return ""
    mismatch = state.summaries.get("mismatch/sketch")
    if mismatch is None:
        reason = state.notes.get("not mismatch", "")
        return (
            ""
            if "identically zero" in reason
            else "mismatch was not observed, so the sampler may not be pi_old"
        )
    if mismatch.abs_quantile(0.99) <= bound("mismatch_small"):
        return ""
    return "mismatch is not small, so the tokens do not stand for pi_old"


def concentration(state: SliceState) -> Iterator[Value]:
    """`drift/concentration`: the source's ESS curve, under a name that claims less.
    `weight_mass/top_token_frac`, `weight_mass/top_trajectory_frac`: shares in [0, 1], nan where the total is
    zero."""
    drift = state.summaries.get("drift/sketch")
    if drift is not None:
        yield Value(
            "drift/concentration", kish_frac(drift.log_mean_exp(1), drift.log_mean_exp(2)), drift.count
        )
    mass = state.summaries.get("weight/mass")
    if mass is not None:
        reason = "" if state.sum_mass > 0 else "every advantage is zero"
        top = mass.abs_mass_top_share(0.01) if state.sum_mass > 0 else math.nan
        yield Value("weight_mass/top_token_frac", top, mass.count, reason=reason)
        share = state.top_mass / state.sum_mass if state.sum_mass > 0 else math.nan
        yield Value("weight_mass/top_trajectory_frac", share, state.n_sequences, reason=reason)
