"""Policy lag: how many versions old are the tokens that are trained on, and how far did the policy move from
the old ones?

Asynchronous trainers mix tokens of several versions in one batch; a tail that sits in the oldest ones is a
matter of the queue, one that sits at lag 0 is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from trimtab.capture.slices import Cells
from trimtab.catalog import LAG_BUCKETS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import LogSketch
from trimtab.types import TokenBatch
from trimtab.typing import Float32

_EDGES = np.array([1, 2, 4])
_AHEAD = "policy_lag: sampled by a version ahead of the current one"


def add_lag(
    batch: TokenBatch, cells: Cells, log_ratios: Mapping[str, Float32], states: Mapping[str, SliceState]
) -> None:
    """Add each slice's lags (current_version - policy_version) and |log-ratio| by lag bucket to its state.

    `log_ratios` are those observed, (N,) each; staleness is taken, else total. A version ahead of the current
    one is left out and counted. Without the two versions a note says why.
    """
    reason = _why_not(batch)
    if reason or batch.policy_version is None or batch.current_version is None:
        for state in states.values():
            state.notes["not policy_lag"] = reason
        return
    lags = batch.current_version - batch.policy_version[batch.loss_mask]
    keep = lags >= 0
    lags, index = lags[keep], cells.index[keep]
    ages = LogSketch(rows=cells.num_cells, mantissa_bits=2, lowest_exponent=-1, highest_exponent=12)
    ages.update(lags.astype(np.float32), index)
    ahead = np.bincount(cells.index[~keep], minlength=cells.num_cells)
    name = next((name for name in ("staleness", "total") if name in log_ratios), "")
    sketch = LogSketch(rows=4 * cells.num_cells, mantissa_bits=4, lowest_exponent=-14)
    if name:
        sketch.update(log_ratios[name][keep], 4 * index + np.searchsorted(_EDGES, lags, side="right"))
    for label, rows in cells.slices.items():
        state = states[label]
        state.summaries["policy_lag/sketch"] = ages.select(list(rows))
        if ahead[list(rows)].any():
            state.excluded[_AHEAD] = int(ahead[list(rows)].sum())
        for at, bucket in enumerate(LAG_BUCKETS):
            part = sketch.select([4 * row + at for row in rows])
            if part.count:
                state.summaries[f"{name}/{bucket}"] = part


def lag(state: SliceState) -> Iterator[Value]:
    """`policy_lag/mean`, `policy_lag/max` (versions), and `staleness/lag_0_p95` .. `lag_4_up_p95` (nats), or
    of `total`.

    The p95 of |log-ratio| of the tokens of that age, within 3 % in size; a bucket without tokens has no
    reading. Without versions the first two are nan with the reason; states of older versions give nothing.
    """
    ages, reason = state.summaries.get("policy_lag/sketch"), state.notes.get("not policy_lag", "")
    if ages is not None:
        reason = "" if ages.count else "every version is ahead of the current one"
        yield Value("policy_lag/mean", ages.mean(), ages.count, reason=reason)
        yield Value("policy_lag/max", ages.max, ages.count, reason=reason)
    elif reason:
        yield Value("policy_lag/mean", math.nan, 0, reason=reason)
        yield Value("policy_lag/max", math.nan, 0, reason=reason)
    for name in ("staleness", "total"):
        for bucket in LAG_BUCKETS:
            sketch = state.summaries.get(f"{name}/{bucket}")
            if sketch is not None:
                yield Value(f"{name}/{bucket}_p95", sketch.abs_quantile(0.95), sketch.count)


def _why_not(batch: TokenBatch) -> str:
    for column in ("policy_version", "current_version"):
        if getattr(batch, column) is None:
            return f"no {column}: {batch.absent.get(column, 'not given')}"
    return ""
