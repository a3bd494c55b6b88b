"""Who carries the update: concentration of drift weights, and the share of |A w| held by few tokens or one trajectory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.types import Value
from trimtab.measure.tokens.ess import kish_frac


def concentration(state: SliceState) -> Iterator[Value]:
    """`drift/concentration`: the source's ESS curve, under a name that claims less. `weight_mass/top_token_frac`,
    `weight_mass/top_trajectory_frac`: shares in [0, 1], nan where the total is zero."""
    drift = state.parts.get("drift/sketch")
    if drift is not None:
        yield Value(
            "drift/concentration", kish_frac(drift.log_mean_exp(1), drift.log_mean_exp(2)), drift.count
        )
    mass = state.parts.get("weight/mass")
    if mass is not None:
        reason = "" if state.sum_mass > 0 else "every advantage is zero"
        top = mass.abs_mass_top_share(0.01) if state.sum_mass > 0 else math.nan
        yield Value("weight_mass/top_token_frac", top, mass.count, reason=reason)
        share = state.top_mass / state.sum_mass if state.sum_mass > 0 else math.nan
        yield Value("weight_mass/top_trajectory_frac", share, state.n_sequences, reason=reason)
