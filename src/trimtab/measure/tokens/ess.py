"""Effective sample size (Kish) of raw weights, a token and a sequence, and the per-token spread beside it.

The mistake it prevents: an ESS of clamped weights, whose floor makes the alarm unreachable, and a sequence ESS read
without its length: for iid N(., s^2) log-ratios it is exp(-T s^2), so a fixed threshold is a length threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.catalog import bound
from trimtab.measure.state.log_ratios import RATIOS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value


def kish_frac(log_mean: float, log_mean_square: float) -> float:
    """ESS/n = (mean w)^2 / mean w^2 from the logs of the two means.

    >>> kish_frac(0.0, 0.0)
    1.0
    """
    return math.exp(min(0.0, 2.0 * log_mean - log_mean_square)) if log_mean > -math.inf else math.nan


def ess(state: SliceState) -> Iterator[Value]:
    """`token_ess_frac`, `token_spread`, and for mismatch and total `sequence_ess_frac`, `sequence_length`."""
    for name, ratio in RATIOS.items():
        sketch = state.parts.get(f"{name}/sketch")
        if sketch is None or "ess" not in ratio.valid:
            continue
        n = sketch.count
        yield Value(f"{name}/token_spread", math.sqrt(max(0.0, sketch.variance())) if n else math.nan, n)
        reason = _blocked(state, name)
        value = math.nan if reason else kish_frac(sketch.log_mean_exp(1), sketch.log_mean_exp(2))
        yield Value(f"{name}/token_ess_frac", value, n, reason=reason)
        sequences = state.parts.get(f"{name}/sequence")
        if sequences is not None:
            yield Value(f"{name}/sequence_ess_frac", sequences.ess_frac(), state.n_sequences)
            length = n / state.n_sequences if state.n_sequences else math.nan
            yield Value(f"{name}/sequence_length", length, state.n_sequences)


def _blocked(state: SliceState, name: str) -> str:
    """Staleness ESS assumes tokens of pi_old; they are of mu, so mismatch must be observed small or zero by construction."""
    if name != "staleness":
        return ""
    mismatch = state.parts.get("mismatch/sketch")
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
