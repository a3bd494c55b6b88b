"""Do the two engines send a token to the same experts, and do re-routed tokens carry the mismatch?

N gradient tokens, L layers, K experts a token. R3 (arXiv 2510.11370) found routing flips behind much of an
MoE's mismatch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from trimtab.capture.expert_routes import EXPERT_COLUMNS
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.token_view import TURN_ROWS, TokenView
from trimtab.measure.state.values import Value
from trimtab.stats import Counts, Moments

MAX_TOKENS = 8_192
"""Tokens of a batch that are compared, evenly spread; K^2 comparisons a layer each (default, not calibrated,
for the cost)."""

_TOKENS, _SLOTS, _SHARED, _SAME = range(4)  # columns of the layer table


def overlap(one: npt.NDArray[np.int16], two: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """|A and B| of two sets of K distinct experts each, (N, L, K) and (N, L, K) -> (N, L).

    >>> overlap(np.array([[[1, 2], [3, 4]]], np.int16), np.array([[[2, 1], [4, 5]]], np.int16)).tolist()
    [[2, 1]]
    """
    a, b = (np.ascontiguousarray(x.transpose(2, 0, 1)) for x in (one, two))
    shared = np.zeros(a.shape[1:], np.int16)
    for mine in a:
        for theirs in b:
            shared += mine == theirs
    return shared


def add_expert_agreement(view: TokenView, states: Mapping[str, SliceState]) -> None:
    """Counts by layer, the share of re-routed tokens, and mismatch of those and of the others."""
    one, two = (getattr(view.batch, name) for name in EXPERT_COLUMNS)
    if one is None or two is None:
        if "all" in states:
            name = EXPERT_COLUMNS[0] if one is None else EXPERT_COLUMNS[1]
            states["all"].notes["not routing"] = f"no {name}: {view.batch.absent.get(name, 'not given')}"
        return
    pick = np.arange(0, view.at.size, max(1, -(-view.at.size // MAX_TOKENS)))
    a, b = one[view.at[pick]], two[view.at[pick]]
    recorded = (a[:, 0, 0] >= 0) & (b[:, 0, 0] >= 0)
    a, b, used = a[recorded], b[recorded], pick[recorded]
    shared, width = overlap(a, b), a.shape[2]
    rows, same = view.rows[used], shared == width
    changed = ~same.all(axis=1)
    for name, chosen in TURN_ROWS.items():
        if name not in states:
            continue
        state, here = states[name], np.isin(rows, chosen)
        count, counts = int(here.sum()), Counts(a.shape[1], 4)
        table = np.full(counts.table.shape, count)
        table[:, _SLOTS] *= width
        table[:, _SHARED], table[:, _SAME] = shared[here].sum(axis=0), same[here].sum(axis=0)
        counts.add(table)
        state.summaries["routing/layers"], state.summaries["routing_changed/values"] = counts, Moments()
        state.summaries["routing_changed/values"].update(changed[here].astype(np.float64))
        sampled = int(np.isin(view.rows[pick], chosen).sum())
        state.excluded["routing: token not sampled"] = int(np.isin(view.rows, chosen).sum()) - sampled
        state.excluded["routing: token without a recorded route"] = sampled - count
    mismatch = view.ratios.get("mismatch")
    if mismatch is not None:
        for part, which in (("changed", changed), ("same", ~changed)):
            view.sketch(f"routing_{part}/sketch", mismatch[used[which]], rows[which], states)


def routing(state: SliceState) -> Iterator[Value]:
    """`routing/*`: shares in [0, 1]; p95 of |mismatch| in nats of re-routed tokens and of the others."""
    layers, changed = state.summaries.get("routing/layers"), state.summaries.get("routing_changed/values")
    if layers is None or changed is None:
        return
    table, n = layers.table, changed.count
    empty = "" if n else "no token has both routes recorded"
    total = table.sum(axis=0)
    yield Value("routing/agree_frac", _share(total[_SHARED], total[_SLOTS]), n, reason=empty)
    yield Value("routing/same_set_frac", _share(total[_SAME], total[_TOKENS]), n, reason=empty)
    worst = int(np.argmin(table[:, _SHARED]))
    share = _share(table[worst, _SHARED], table[worst, _SLOTS])
    yield Value(
        "routing/worst_layer_frac", share, n, reason=empty or f"layer {worst} of {len(table)}, from 0"
    )
    yield Value("routing/any_layer_changed_frac", changed.mean(), n, reason=empty)
    for part, without in (("changed", "no token was re-routed"), ("same", "every token was re-routed")):
        sketch = state.summaries.get(f"routing_{part}/sketch")
        key = f"routing/mismatch_p95_{part}"
        if sketch is None:
            yield Value(key, math.nan, 0, reason=state.notes.get("not mismatch", "mismatch was not observed"))
        else:
            reason = "" if sketch.count else without
            yield Value(key, sketch.abs_quantile(0.95), sketch.count, reason=reason)


def _share(part: int, whole: int) -> float:
    return float(part) / float(whole) if whole else math.nan
