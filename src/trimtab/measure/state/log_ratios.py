"""Which log-ratio, and what may be computed from it: one table as code.

The mistake it prevents: an ESS of drift read as a sampling diagnostic, a KL with the wrong sampler, a bare
"ratio".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from trimtab.errors import BatchError
from trimtab.types import TokenBatch
from trimtab.typing import Float32


@dataclass(frozen=True)
class Ratio:
    """`log(numerator) - log(denominator)`, tokens sampled by `sampler`; `valid` lists the measures it
    supports."""

    name: str
    numerator: str
    denominator: str
    sampler: str
    valid: frozenset[str]


RATIOS: dict[str, Ratio] = {
    ratio.name: ratio
    for ratio in (
        Ratio(
            "mismatch",
            "old_logprobs",
            "rollout_logprobs",
            "rollout_logprobs",
            frozenset({"tails", "ess", "sequence_ess", "khat", "second_moment", "kl"}),
        ),
        Ratio(
            "staleness", "logprobs", "old_logprobs", "rollout_logprobs", frozenset({"tails", "clip", "ess"})
        ),
        Ratio(
            "total",
            "logprobs",
            "rollout_logprobs",
            "rollout_logprobs",
            frozenset({"tails", "ess", "sequence_ess", "khat", "second_moment", "kl", "first_order"}),
        ),
        Ratio(
            "drift",
            "logprobs",
            "ref_logprobs",
            "logprobs",
            frozenset({"tails", "kl", "second_moment_ref", "concentration"}),
        ),
        Ratio("lagged_drift", "logprobs", "prox_logprobs", "fixed", frozenset({"tails"})),
    )
}
"""Name -> ratio. `lagged_drift` compares two scorings of fixed probes; the earlier one travels as
`prox_logprobs`."""


SAME_POLICY = "are the same policy here"
"""Reason why a log-ratio is zero by construction: nothing is lost."""


def why_not(batch: TokenBatch, ratio: Ratio) -> str:
    """Why a batch cannot give this ratio, in words; empty when it can."""
    if (
        ratio.name == "total"
        and frozenset(("logprobs", "old_logprobs")) in batch.same
        and batch.rollout_logprobs is not None
    ):
        return f"logprobs and old_logprobs {SAME_POLICY}: total equals mismatch"
    if frozenset((ratio.numerator, ratio.denominator)) in batch.same:
        return f"{ratio.numerator} and {ratio.denominator} {SAME_POLICY}: identically zero"
    for column in (ratio.numerator, ratio.denominator):
        if getattr(batch, column) is None:
            return f"no {column}: {batch.absent.get(column, 'not given')}"
    return ""


def omitted_columns(columns: Collection[str]) -> dict[str, list[str]]:
    """Column that is not among `columns` -> what cannot be observed without it.

    >>> omitted_columns({"logprobs", "rollout_logprobs", "ref_logprobs", "advantages", "entropy", "reward"})
    {'old_logprobs': ['mismatch', 'staleness']}
    """
    costs: dict[str, list[str]] = {}
    for ratio in RATIOS.values():
        for column in (ratio.numerator, ratio.denominator):
            if ratio.name != "lagged_drift" and column not in columns:
                costs.setdefault(column, []).append(ratio.name)
    for column, what in (("advantages", "weight concentration"), ("entropy", "entropy by slice")):
        if column not in columns:
            costs[column] = [what]
    return costs


def log_ratio(batch: TokenBatch, ratio: Ratio) -> Float32:
    """Log-ratio (N_loss,), nats, of the tokens with gradient; BatchError when the two columns follow
    different conventions."""
    one, two = batch.conventions.get(ratio.numerator), batch.conventions.get(ratio.denominator)
    if one is not None and two is not None and one != two:
        raise BatchError(
            f"{ratio.numerator} was computed with {one}, {ratio.denominator} with {two}: {ratio.name} needs "
            f"equal ones"
        )
    numerator: Float32 = getattr(batch, ratio.numerator)
    denominator: Float32 = getattr(batch, ratio.denominator)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, which is counted as such
        difference: Float32 = numerator[batch.loss_mask] - denominator[batch.loss_mask]
    return difference
