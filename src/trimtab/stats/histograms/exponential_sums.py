"""Sums of e^x, e^2x and e^-x of values of any size: kept under a shift that the extremes alone decide.

    stored[:, j] = sum over x of exp(p_j x - |p_j| a_j),  p = (1, 2, -1)

a is 0 while the extreme is within 300 nats (f64 holds the sums of 10^47 such values), else the extreme
itself: max x for e^x and e^2x, max -x for e^-x. So two states with the same values agree on the shift,
whatever their order.
"""

from __future__ import annotations

import numpy as np

from trimtab.typing import Float64, Int64

State = tuple[Float64, Float64, Float64]

POWERS = (1, 2, -1)
UNSHIFTED = 300.0  # nats; e^(2 * 300) = 1e260
_WEIGHTS = np.array([1.0, 2.0, 1.0])
_ALL = slice(None)


def shifts(low: Float64, high: Float64) -> Float64:
    """(R, 3) shifts of rows whose values lie in [low, high]; an empty row (inf, -inf) has none."""
    extreme = np.stack((high, high, -low), axis=-1)
    return np.where((np.abs(extreme) <= UNSHIFTED) | np.isneginf(extreme), 0.0, extreme)


def empty(rows: int) -> State:
    """The state of rows that hold nothing."""
    return np.zeros((rows, 3)), np.full(rows, np.inf), np.full(rows, -np.inf)


def is_calm(state: State) -> bool:
    """Is every value of these non-empty rows within 300 nats, so that no shift is needed?"""
    low, high = state[1], state[2]
    if low.size == 1:  # without the cost of a reduction
        return bool(low[0] >= -UNSHIFTED and high[0] <= UNSHIFTED)
    return bool(low.min() >= -UNSHIFTED and high.max() <= UNSHIFTED)


def absorb_calm(state: State, more: State, rows: Int64 | slice) -> None:
    """`absorb` where both sides are known to be calm, the usual case."""
    state[0][rows] += more[0]
    state[1][rows] = np.minimum(state[1][rows], more[1])
    state[2][rows] = np.maximum(state[2][rows], more[2])


def absorb(state: State, more: State, rows: Int64 | slice = _ALL) -> None:
    """Add `more`, one row for each of the distinct `rows`, to those rows of `state`, in place."""
    sums, low, high = state
    if is_calm((sums[rows], low[rows], high[rows])) and is_calm(more):
        absorb_calm(state, more, rows)
        return
    old, other = shifts(low[rows], high[rows]), shifts(more[1], more[2])
    low[rows] = np.minimum(low[rows], more[1])
    high[rows] = np.maximum(high[rows], more[2])
    new = shifts(low[rows], high[rows])
    rescaled = sums[rows] * np.exp(_WEIGHTS * np.minimum(old - new, 0.0))
    sums[rows] = rescaled + more[0] * np.exp(_WEIGHTS * np.minimum(other - new, 0.0))


def log_sum(sums: Float64, low: float, high: float, power: int) -> float:
    """log of the sum of e^(power x) of one row's (3,) sums; nan when empty."""
    at = POWERS.index(power)
    if low > high:
        return float("nan")
    extreme = (high, high, -low)[at]
    shift = 0.0 if abs(extreme) <= UNSHIFTED else extreme  # as `shifts`, of one row that is not empty
    return float(np.log(sums[at]) + _WEIGHTS[at] * shift)


def absorb_many(state: State, many: State) -> None:
    """Add up M states, sums (M, R, 3) and extremes (M, R), into an empty one, in place."""
    if is_calm((state[0], many[1].min(axis=0), many[2].max(axis=0))):
        absorb_calm(state, (many[0].sum(axis=0), many[1].min(axis=0), many[2].max(axis=0)), _ALL)
        return
    for one in zip(*many, strict=True):
        absorb(state, one)
