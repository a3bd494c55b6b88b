"""Turn a batch into the state of every slice, in one pass.

B sequences, N tokens with gradient, C occupied cells. Token sums are made per cell; slices add cells up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from trimtab.capture.slices import Cells, cells_of
from trimtab.measure.policy.exemplar_tokens import add_worst_tokens
from trimtab.measure.policy.expert_agreement import add_expert_agreement
from trimtab.measure.policy.prompt_retrieval import add_prompt_hits
from trimtab.measure.policy.token_entropy import add_entropy
from trimtab.measure.state.log_ratios import RATIOS, Ratio, log_ratio, why_not
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import TokenView
from trimtab.measure.tokens.clip import add_clip
from trimtab.measure.tokens.first_order_gap import DIRECT, add_gaps, add_log_gaps, first_order_gaps
from trimtab.measure.tokens.low_probability import add_rare_tokens
from trimtab.measure.tokens.policy_lag import add_lag
from trimtab.stats import ClusterTail, LogMoments, LogSketch, Moments, TopK
from trimtab.types import TokenBatch
from trimtab.typing import Float32, Float64

MASS_EXPONENT = 24
"""|A w| is histogrammed up to 2^24; the tail beyond shares one bucket."""

_LARGEST_LOG_WEIGHT = 690.0
"""A larger weight counts as e^690 in |A w|, so that sums stay finite: it is the largest, not a missing
one."""

_COLUMNS = (
    "rollout_logprobs",
    "old_logprobs",
    "logprobs",
    "prox_logprobs",
    "ref_logprobs",
    "advantages",
    "entropy",
)
EXTRA_STATES: tuple[Callable[[TokenView, Mapping[str, SliceState]], None], ...] = (
    add_entropy,
    add_worst_tokens,
    add_prompt_hits,
    add_rare_tokens,
    add_expert_agreement,
)
"""Functions that add states beyond the log-ratios' own. To add one: a function, a line here."""

S = TypeVar("S", LogMoments, LogSketch, Moments)


@dataclass(frozen=True)
class _Pass:
    batch: TokenBatch
    cells: Cells
    fresh: npt.NDArray[np.bool_]  # (B,) trajectories not seen before

    def by_sequence(self, values: Float64) -> Float64:
        """(N,) -> sums (B, C)."""
        shape = (self.batch.num_sequences, self.cells.num_cells)
        flat = np.bincount(
            self.cells.sequence * shape[1] + self.cells.index, weights=values, minlength=shape[0] * shape[1]
        )
        return np.asarray(flat.reshape(shape), dtype=np.float64)


def observe(batch: TokenBatch, fresh: npt.NDArray[np.bool_] | None = None) -> dict[str, SliceState]:
    """State of every slice that has tokens, `{}` when all are masked.

    `fresh` (B,) marks trajectories counted for the first time (default: all); a trajectory trained on twice
    is one.
    """
    cells = cells_of(batch)
    if cells.num_cells == 0:
        return {}
    names = cells.slices
    cells = replace(
        cells, slices={name: rows for rows, name in {rows: name for name, rows in names.items()}.items()}
    )
    new = np.ones(batch.num_sequences, bool) if fresh is None else fresh
    run = _Pass(batch, cells, new)
    counts = run.by_sequence(np.ones(cells.index.size))
    scored = np.ones(batch.num_sequences, bool) if batch.ref_scored is None else batch.ref_scored
    states = {
        name: _counts(counts[:, list(rows)].sum(axis=1), new, scored) for name, rows in cells.slices.items()
    }
    weights: Float32 | None = None
    log_ratios: dict[str, Float32] = {}
    for ratio in RATIOS.values():
        reason = why_not(batch, ratio)
        if reason and ratio.name == "lagged_drift":  # of probes only; `measure.probes` fills it
            continue
        if reason:
            for state in states.values():
                state.notes[f"not {ratio.name}"] = reason
            continue
        values = log_ratios[ratio.name] = log_ratio(batch, ratio)
        _add_ratio(run, ratio, values, states, counts)
        if ratio.name in ("total", "staleness"):
            weights = values
    if "staleness" in log_ratios:
        add_clip(batch, cells, log_ratios["staleness"], states)
    add_lag(batch, cells, log_ratios, states)
    _add_plain(run, states)
    _add_mass(run, weights, states)
    by_cells = {cells.slices[name]: state for name, state in states.items()}
    shared = {name: by_cells[rows] for name, rows in names.items()}  # slices of the same cells share one
    view = TokenView(batch, cells.sequence, log_ratios)
    for add_states in EXTRA_STATES:
        add_states(view, shared)
    return shared


def nonfinite_columns(batch: TokenBatch) -> dict[str, int]:
    """Column -> number of NaN and infinities among tokens with gradient (of the scored sequences, for the
    reference)."""
    counts: dict[str, int] = {}
    for name in _COLUMNS:
        values = getattr(batch, name)
        if values is None or np.isfinite(values.sum()):  # then all of them are
            continue
        mask = batch.loss_mask
        if name == "ref_logprobs" and batch.ref_scored is not None:
            mask = mask & np.repeat(batch.ref_scored, batch.lengths)
        bad = int(mask.sum() - np.isfinite(values[mask]).sum())
        if bad:
            counts[name] = bad
    if batch.reward is not None and not np.isfinite(batch.reward).all():
        counts["reward"] = int((~np.isfinite(batch.reward)).sum())
    return counts


def _counts(tokens: Float64, fresh: npt.NDArray[np.bool_], scored: npt.NDArray[np.bool_]) -> SliceState:
    here = tokens > 0
    return SliceState(
        n_tokens=int(tokens.sum()),
        n_trajectories=int((here & fresh).sum()),
        n_sequences=int(here.sum()),
        scored_tokens=int(tokens[scored].sum()),
        scored_trajectories=int((here & fresh & scored).sum()),
    )


def _scored(run: _Pass, ratio: Ratio) -> npt.NDArray[np.bool_] | None:
    """(N,) tokens of sequences the reference scored; None when that is all of them."""
    scored = run.batch.ref_scored
    if ratio.denominator != "ref_logprobs" or scored is None or scored.all():
        return None
    chosen: npt.NDArray[np.bool_] = scored[run.cells.sequence]
    return chosen


def _add_ratio(
    run: _Pass, ratio: Ratio, values: Float32, states: dict[str, SliceState], counts: Float64
) -> None:
    index, sequence = run.cells.index, run.cells.sequence
    keep = _scored(run, ratio)
    if keep is not None:
        values, index, sequence = values[keep], index[keep], sequence[keep]
    rows = run.cells.num_cells
    sketch = LogSketch(rows=rows)
    sketch.update(values, index)
    signs = 2 if "khat" in ratio.valid else 1  # then a cell has a row of x <= 0 and one of x > 0
    clusters = ClusterTail(rows=signs * rows)
    clusters.update(values, index if signs == 1 else 2 * index + (values > 0), run.batch.episode_id[sequence])
    upper, lower = TopK(rows=rows), TopK(rows=rows)
    if "khat" in ratio.valid:
        upper.update(values, index)
        lower.update(-values, index)
    shape = (run.batch.num_sequences, rows)
    sums = _sequence_sums(values, index, sequence, shape)
    gaps, high = None, bool((values > DIRECT).any())
    if "first_order" in ratio.valid:
        gaps = _sequence_sums(np.expm1(np.minimum(values.astype(np.float64), DIRECT)), index, sequence, shape)
    for name, cells in run.cells.slices.items():
        state, chosen = states[name], list(cells)
        here = counts[:, chosen].sum(axis=1) > 0
        state.summaries[f"{ratio.name}/sketch"] = sketch.select(chosen)
        state.summaries[f"{ratio.name}/clusters"] = clusters.select(
            [signs * row + sign for row in chosen for sign in range(signs)]
        )
        if "khat" in ratio.valid:
            state.summaries[f"{ratio.name}/upper"] = upper.select(chosen)
            state.summaries[f"{ratio.name}/lower"] = lower.select(chosen)
            state.summaries[f"{ratio.name}/rises"] = clusters.select([2 * row + 1 for row in chosen])
        if "sequence_ess" in ratio.valid:
            state.summaries[f"{ratio.name}/sequence"] = _filled(
                LogMoments(), sums[:, chosen].sum(axis=1)[here]
            )
        if gaps is not None:
            product = sums[:, chosen].sum(axis=1)[here]
            if high or (product > DIRECT).any():
                within = np.isin(index, chosen)
                add_log_gaps(state, ratio.name, first_order_gaps(values[within], sequence[within]))
            else:
                add_gaps(state, ratio.name, np.abs(np.expm1(product) - gaps[:, chosen].sum(axis=1)[here]))
        if keep is not None:
            state.excluded[f"{ratio.name}: sequence not sampled for the reference"] = (
                state.n_tokens - state.scored_tokens
            )
        if ratio.denominator == "ref_logprobs" and run.batch.reference:
            state.notes["drift"] = run.batch.reference


def _sequence_sums(
    values: npt.NDArray[np.floating],
    index: npt.NDArray[np.int64],
    sequence: npt.NDArray[np.int64],
    shape: tuple[int, int],
) -> Float64:
    with np.errstate(invalid="ignore", over="ignore"):
        flat = np.bincount(sequence * shape[1] + index, weights=values, minlength=shape[0] * shape[1])
    return np.asarray(flat.reshape(shape), dtype=np.float64)


def _filled(
    summary: LogMoments | LogSketch | Moments, values: npt.NDArray[np.floating]
) -> LogMoments | LogSketch | Moments:
    summary.update(values)
    return summary


def _add_plain(run: _Pass, states: dict[str, SliceState]) -> None:
    """Entropy and reference support a token, alpha, reward a sequence."""
    batch, mask, slices = run.batch, run.batch.loss_mask, run.cells.slices
    if batch.entropy is not None:
        per_cell = Moments.by_row(batch.entropy[mask], run.cells.index, run.cells.num_cells)
        for name, cells in slices.items():
            states[name].summaries["entropy/values"] = reduce(Moments.merge, [per_cell[c] for c in cells])
    if batch.ref_logprobs is not None:
        scored = _scored(run, RATIOS["drift"])
        keep = slice(None) if scored is None else scored
        sketch = LogSketch(rows=run.cells.num_cells)
        sketch.update(batch.ref_logprobs[mask][keep], run.cells.index[keep])
        for name, cells in slices.items():
            states[name].summaries["ref_logprob/sketch"] = sketch.select(list(cells))
    every = next(state for name, state in states.items() if len(slices[name]) == run.cells.num_cells)
    every.summaries["alpha/values"] = _filled(Moments(), (batch.phase[mask] > 0).astype(np.float64))
    if batch.reward is not None:
        every.summaries["reward/values"] = _filled(Moments(), batch.reward)


def _add_mass(run: _Pass, log_weights: Float32 | None, states: dict[str, SliceState]) -> None:
    """|A w| a token; w is one where no ratio is observed (on-policy by construction), which the note says."""
    if run.batch.advantages is None:
        return
    advantage = np.abs(run.batch.advantages[run.batch.loss_mask].astype(np.float64))
    mass = advantage
    if log_weights is not None:
        mass = advantage * np.exp(np.minimum(log_weights.astype(np.float64), _LARGEST_LOG_WEIGHT))
    finite = np.where(np.isfinite(mass), mass, 0.0)  # excluded from the totals; the sketch counts them
    table = run.by_sequence(finite)
    rows = run.cells.num_cells
    sketch = LogSketch(rows=rows, highest_exponent=MASS_EXPONENT)
    sketch.update(np.minimum(mass, np.finfo(np.float32).max), run.cells.index)
    for name, cells in run.cells.slices.items():
        state, per_sequence = states[name], table[:, list(cells)].sum(axis=1)
        state.summaries["weight/mass"] = sketch.select(list(cells))
        state.top_mass, state.sum_mass = float(per_sequence.max(initial=0.0)), float(per_sequence.sum())
        state.notes["weight"] = (
            "w = 1: on policy, no ratio observed" if log_weights is None else "w = pi_theta / behaviour"
        )
