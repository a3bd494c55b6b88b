"""Clip shares of staleness: how many tokens lie outside PPO's clip range, and of how many does the clip
remove the gradient?

The objective is min(r A, clip(r) A): outside the range the gradient vanishes only where the clipped branch is
the smaller one, A > 0 above and A < 0 below (arXiv 1707.06347, eq. 7). The other tokens outside keep theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from trimtab.capture.slices import Cells
from trimtab.catalog import bound
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import CategoryCounts
from trimtab.types import TokenBatch
from trimtab.typing import Float32

_INSIDE, _ABOVE, _BELOW = range(3)
_UNKNOWN, _NEGATIVE, _ZERO, _POSITIVE = range(4)


def add_clip(batch: TokenBatch, cells: Cells, log_ratios: Float32, states: Mapping[str, SliceState]) -> None:
    """Count each token's side of the batch's own clip range (else 0.2) by the sign of its advantage, in every
    slice.

    `log_ratios` (N,) of staleness; those that are not finite are left out, as the sketch counts them. Each
    batch is judged by its own range, so windows over a change of it stay right.
    """
    low, high = batch.clip_range or (bound("clip"), bound("clip"))
    side = np.zeros(log_ratios.size, np.int8)
    side[log_ratios > np.float32(math.log1p(high))] = _ABOVE
    side[log_ratios < np.float32(math.log1p(-low))] = _BELOW
    code, finite = side * np.int8(4), np.isfinite(log_ratios)
    if batch.advantages is not None:
        code += _sign(batch.advantages[batch.loss_mask])
    counts = CategoryCounts(cells.num_cells, 12)
    counts.update(code[finite], cells.index[finite])
    for name, rows in cells.slices.items():
        states[name].summaries["staleness/clip"] = counts.select(list(rows))


def clip(state: SliceState) -> Iterator[Value]:
    """`staleness/clip_high_frac`: share with pi_theta/pi_old above 1 + epsilon; `clip_low_frac`: below 1 -
    epsilon.

    `clip_active_high_frac`, `clip_active_low_frac`: share of the tokens with an advantage whose gradient the
    clip removes; nan with a reason where no advantage was seen. Stored states of older versions give the
    first two at 0.2.
    """
    sketch, counts = state.summaries.get("staleness/sketch"), state.summaries.get("staleness/clip")
    if sketch is not None and counts is None:
        n, epsilon = sketch.count, bound("clip")
        yield Value("staleness/clip_high_frac", 1.0 - sketch.share_below(math.log1p(epsilon)), n)
        yield Value("staleness/clip_low_frac", sketch.share_below(math.log1p(-epsilon)), n)
    if counts is None:
        return
    table = counts.counts().reshape(3, 4)
    n, judged = int(table.sum()), int(table[:, _NEGATIVE:].sum())
    sides = (("high", _ABOVE, _POSITIVE), ("low", _BELOW, _NEGATIVE))
    for label, side, _ in sides:
        yield Value(
            f"staleness/clip_{label}_frac",
            _share(table[side].sum(), n),
            n,
            reason="" if n else "no finite log-ratio",
        )
    for label, side, sign in sides:
        reason = "" if judged else "no advantage was given"
        yield Value(
            f"staleness/clip_active_{label}_frac", _share(table[side, sign], judged), judged, reason=reason
        )


def _sign(advantages: Float32) -> npt.NDArray[np.int8]:
    sign = np.full(advantages.size, _ZERO, np.int8)
    sign[advantages > 0] = _POSITIVE
    sign[advantages < 0] = _NEGATIVE
    sign[np.isnan(advantages)] = _UNKNOWN
    return sign


def _share(count: np.int64, n: int) -> float:
    return int(count) / n if n else math.nan
