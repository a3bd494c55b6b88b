"""Reference support: how much probability did the reference give the tokens the policy wrote? The mechanism
itself.

Mismatch on rare tokens: do the engines disagree where the sampler itself was least sure?

The engines' mismatch concentrates on tokens of low mu, mostly pi_old << mu, and there it starts (Liu, Li et
al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from trimtab.catalog import PROB_BANDS, bound
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import MAIN_ROWS, TokenView
from trimtab.measure.state.values import Value
from trimtab.stats import LogSketch


def support(state: SliceState) -> Iterator[Value]:
    """`ref_logprob/p01, p05, p50` (nats, <= 0) and the shares below -5 and -10 nats."""
    sketch = state.summaries.get("ref_logprob/sketch")
    if sketch is None:
        return
    n = sketch.count
    for label, q in (("p01", 0.01), ("p05", 0.05), ("p50", 0.5)):
        yield Value(f"ref_logprob/{label}", sketch.quantile(q), n)
    yield Value("ref_logprob/below_5_frac", sketch.share_below(bound("near_support_5")), n)
    yield Value("ref_logprob/below_10_frac", sketch.share_below(bound("near_support_10")), n)


def add_rare_tokens(view: TokenView, states: Mapping[str, SliceState]) -> None:
    """One sketch of mismatch a band of mu in the slices `MAIN_SLICES`; bands follow on each other. Nothing
    where mismatch is not observed (its note says why)."""
    mismatch, mu = view.ratios.get("mismatch"), view.batch.rollout_logprobs
    if mismatch is None or mu is None:
        return
    boundaries = np.log([up_to for _, up_to in PROB_BANDS.values()]).astype(np.float32)
    mine = mu[view.at]
    at = np.flatnonzero(mine <= boundaries[-1])
    band = np.searchsorted(boundaries, mine[at], side="left")
    sketch = LogSketch(rows=2 * boundaries.size)
    sketch.update(mismatch[at], 2 * band + view.halves[at])
    for name, rows in MAIN_ROWS.items():
        if name in states:
            for i, label in enumerate(PROB_BANDS):
                states[name].summaries[f"mismatch_{label}/sketch"] = sketch.select(
                    [2 * i + row for row in rows]
                )


def rare(state: SliceState) -> Iterator[Value]:
    """`mismatch/p95_prob_<band>` in nats, the 95th percentile of |mismatch| of the band's tokens."""
    for band in PROB_BANDS:
        sketch = state.summaries.get(f"mismatch_{band}/sketch")
        if sketch is not None:
            reason = "" if sketch.count else "no token of this probability"
            yield Value(f"mismatch/p95_prob_{band}", sketch.abs_quantile(0.95), sketch.count, reason=reason)
