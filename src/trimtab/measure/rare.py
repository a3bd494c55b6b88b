"""Mismatch on rare tokens: do the engines disagree where the sampler itself was least sure?

The engines' mismatch concentrates on tokens of low mu, mostly pi_old << mu, and there it starts (Liu, Li et al. 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trimtab.catalog import PROB_BANDS
from trimtab.measure.coarse import Own
from trimtab.measure.state import SliceState
from trimtab.measure.value import Value

__all__ = ["fill_rare", "rare"]


def fill_rare(own: Own, states: Mapping[str, SliceState]) -> None:
    """One sketch of mismatch a band of mu; nothing where mismatch is not observed (its note says why)."""
    mismatch, mu = own.ratios.get("mismatch"), own.batch.rollout_logprobs
    if mismatch is None or mu is None:
        return
    mine = mu[own.at]
    for band, (above, up_to) in PROB_BANDS.items():
        inside = mine <= math.log(up_to)
        if above > 0:
            inside &= mine > math.log(above)
        own.sketch(f"mismatch_{band}/sketch", mismatch[inside], own.rows[inside], states)


def rare(state: SliceState) -> Iterator[Value]:
    """`mismatch/p95_prob_<band>` in nats, the 95th percentile of |mismatch| of the band's tokens."""
    for band in PROB_BANDS:
        sketch = state.parts.get(f"mismatch_{band}/sketch")
        if sketch is not None:
            reason = "" if sketch.count else "no token of this probability"
            yield Value(f"mismatch/p95_prob_{band}", sketch.abs_quantile(0.95), sketch.count, reason=reason)
