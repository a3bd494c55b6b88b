"""All measures, and how a slice's state becomes readings. To add a measure: one file, one line in MEASURES,
one catalog row a key."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trimtab.capture.expert_routes import EXPERT_COLUMNS
from trimtab.catalog import MAIN_SLICES
from trimtab.measure.policy.expert_agreement import routing
from trimtab.measure.policy.prompt_retrieval import ngrams
from trimtab.measure.policy.token_entropy import borders, entropy
from trimtab.measure.sequences.aggregates import aggregates
from trimtab.measure.sequences.reencoding import retokenise
from trimtab.measure.sequences.response_shape import text_shape
from trimtab.measure.sequences.reward_statistics import reward_parts, rewards
from trimtab.measure.state.log_ratios import RATIOS, why_not
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Measure, Value
from trimtab.measure.tokens.clip import clip
from trimtab.measure.tokens.divergences import chi2, chi2_interval, kl
from trimtab.measure.tokens.ess import concentration, ess
from trimtab.measure.tokens.first_order_gap import first_order
from trimtab.measure.tokens.log_ratio_tails import tail_ratio, tails
from trimtab.measure.tokens.low_probability import rare, support
from trimtab.measure.tokens.policy_lag import lag
from trimtab.measure.tokens.tail_indices import khat, log_ratio_tail_indices, tail_indices
from trimtab.measure.tokens.window_shift import WindowShift
from trimtab.types import Reading, TokenBatch, Window

MEASURES: dict[str, Measure] = {
    "tails": tails,
    "ess": ess,
    "khat": khat,
    "kl": kl,
    "chi2": chi2,
    "concentration": concentration,
    "clip": clip,
    "lag": lag,
    "first_order": first_order,
    "support": support,
    "entropy": entropy,
    "borders": borders,
    "rare": rare,
    "routing": routing,
    "ngrams": ngrams,
}

IN_DETAIL: dict[str, Measure] = {"khat": tail_indices, "chi2": chi2_interval, "hill": log_ratio_tail_indices}
"""Measures of the slices `MAIN_SLICES` in place of those of the same name, or beside them: they resample
trajectories."""

OF_ALL: tuple[Measure, ...] = (aggregates, rewards, text_shape, retokenise)
"""Measures of the slice `all` alone, most of them over whole sequences."""


NOTED = {"entropy": "entropy/sketch", "routing": "routing/layers", "distinguish": "distinguish_hits/values"}
"""What has a note `not <name>` when it was not observed -> the state it has when it was."""

_NEEDED = {"entropy": ("entropy",), "routing": EXPERT_COLUMNS, "distinguish": ("token_ids", "group")}
"""The same names -> the columns of a batch without which they are not observed."""


def readings_of(
    name: str, window: Window, state: SliceState, shift: WindowShift | None = None
) -> list[Reading]:
    """Every reading the state of slice `name` supports over `window`; with `shift`, against its earlier
    windows too.

    `IN_DETAIL` and `shift` are for the slices `MAIN_SLICES` alone.
    """
    main = name in MAIN_SLICES
    measures = {**MEASURES, **IN_DETAIL} if main else MEASURES
    values = [value for measure in measures.values() for value in measure(state)]
    parts: list[tuple[str, Value]] = []
    if name == "all":
        values += [value for measure in OF_ALL for value in measure(state)]
        parts = list(reward_parts(state))
    if shift is not None and main:
        values += shift.update(name, state)
    labels: dict[str, tuple[dict[str, int], str]] = {}
    readings = [_reading(value, name, window, state, labels) for value in values]
    return readings + [_reading(value, part, window, state, labels) for part, value in parts]


def pair_readings(window: Window, states: Mapping[str, SliceState]) -> list[Reading]:
    """Readings that compare text and post_tool over the same steps."""
    text, post = states["text"], states["post_tool"]
    return [_reading(value, "post_tool", window, post, {}) for value in tail_ratio(text, post)]


def unobservable(batch: TokenBatch) -> dict[str, str]:
    """Ratio, or a name of `NOTED`, -> why the columns of `batch` cannot give it, measured or not."""
    ratios = (ratio for ratio in RATIOS.values() if ratio.name != "lagged_drift")
    reasons = {ratio.name: why for ratio in ratios if (why := why_not(batch, ratio))}
    for name, columns in _NEEDED.items():
        lacking = [column for column in columns if getattr(batch, column) is None]
        if lacking:
            reasons[name] = f"no {lacking[0]}: {batch.absent.get(lacking[0], 'not given')}"
    return reasons


def not_observed(states: Mapping[str, SliceState]) -> dict[str, str]:
    """Ratio, or a name of `NOTED`, -> why it was not observed, from the states of a step; what was is
    absent."""
    reasons: dict[str, str] = {}
    for state in states.values():
        for what, part in {**{ratio: f"{ratio}/sketch" for ratio in RATIOS}, **NOTED}.items():
            if part not in state.summaries and f"not {what}" in state.notes:
                reasons[what] = state.notes[f"not {what}"]
    return reasons


def _labels(family: str, state: SliceState) -> tuple[dict[str, int], str]:
    """What was excluded from the readings `<family>/*`, and what they refer to."""
    excluded = {k: v for k, v in state.excluded.items() if k.startswith(f"{family}:") and v}
    sketch = state.summaries.get(f"{family}/sketch")
    if sketch is not None:
        counts = {"nan": sketch.num_nan, "+inf": sketch.num_posinf, "-inf": sketch.num_neginf}
        excluded |= {k: v for k, v in counts.items() if v}
    reference = state.notes.get("drift", "") if family in ("drift", "tail_ratio", "ref_logprob") else ""
    if family == "weight_mass":
        reference = state.notes.get("weight", "")
    return excluded, reference


def _reading(
    value: Value,
    name: str,
    window: Window,
    state: SliceState,
    labels: dict[str, tuple[dict[str, int], str]],
) -> Reading:
    """One value as a reading; `labels` keeps what is the same for all readings of a family of one state."""
    family = value.key.split("/", 1)[0]
    if family not in labels:
        labels[family] = _labels(family, state)
    excluded, reference = labels[family]
    return Reading(
        key=value.key,
        step=window.last,
        window=window,
        slice=name,
        value=value.value,
        n_tokens=value.n,
        n_trajectories=state.scored_trajectories if reference else state.n_trajectories,
        low=value.low,
        high=value.high,
        reference=reference,
        excluded=excluded,
        status="not observed" if value.reason and math.isnan(value.value) else "ok",
        reason=value.reason,
        state=state,
    )
