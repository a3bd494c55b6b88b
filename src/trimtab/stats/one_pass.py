"""The hot loop of LogSketch: one chunk's values brought together by row, then summed run by run.

Measured with benchmarks/measure.py before it was written this way: a radix argsort of small row numbers costs 4 ns a
token where five weighted bincounts cost 12, and dot products of pieces sum a float64 array in 0.3 ns where reduceat
takes 0.7. Pieces of 8,192 stay under the length at which OpenBLAS would start threads (10,000), and are short enough
for float32 partial sums (relative error under 1e-6), which are folded in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.stats import exp_sums

__all__ = ["CHUNK", "Buffers", "Runs", "group", "sums"]

CHUNK = 131_072  # values of one chunk: its temporaries stay in cache
PIECE = 8_192
FEW = 3
SMALL = 1.0  # nats
SAFE = 35.0  # nats: 8,192 e^(2 * 35) is a float32

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
_ONES: dict[str, Array] = {kind: np.ones(PIECE, dtype=kind) for kind in ("float32", "float64")}


class Buffers:
    """Scratch space of one update, written over by every chunk."""

    def __init__(self, size: int) -> None:
        self.grouped = np.empty(size, dtype=np.float32)
        self.wide = np.empty(size, dtype=np.float64)
        self.grown = np.empty(size, dtype=np.float32)
        self.falling = np.empty(size, dtype=np.float32)


class Runs(NamedTuple):
    """Values in runs of one row each: run i is values[bounds[i]:bounds[i + 1]] of row rows[i], none empty."""

    values: Float32
    rows: Int64
    bounds: Int64
    low: Float32
    high: Float32


def group(values: Float32, cells: Array | None, num_rows: int, buffers: Buffers) -> Runs:
    """Runs of a non-empty chunk; `low` and `high` are not finite where a run holds something that is not."""
    rows, bounds = np.zeros(1, dtype=np.int64), np.array([0, values.size])
    if cells is not None:
        order = _order(cells, num_rows)
        starts = np.searchsorted(cells, np.arange(num_rows, dtype=cells.dtype), sorter=order)
        ends = np.append(starts[1:], values.size)
        rows = np.flatnonzero(ends > starts)
        bounds = np.append(starts[rows], values.size)
        values = np.take(values, order, out=buffers.grouped[: values.size], mode="clip")
    low, high = np.minimum.reduceat(values, bounds[:-1]), np.maximum.reduceat(values, bounds[:-1])
    return Runs(values, rows, bounds, low, high)


def _order(cells: Array, num_rows: int) -> Int64:
    """Positions of row 0, then of row 1, ..: scans are the faster way for few rows, a radix sort for more."""
    if num_rows > FEW:
        return np.argsort(cells, kind="stable")
    return np.concatenate([np.flatnonzero(cells == row) for row in range(num_rows)])


def sums(runs: Runs, buffers: Buffers) -> tuple[Float64, Float64]:
    """Per run: (sum x, sum x^2), and the shifted sums of e^x, e^2x, e^-x as in `exp_sums`."""
    wide = buffers.wide[: runs.values.size]
    np.copyto(wide, runs.values)
    grown, falling, less = _exponentials(runs, wide, buffers)
    plain, exps = np.zeros((runs.rows.size, 2)), np.zeros((runs.rows.size, 3))
    ones64, ones = _ONES["float64"], _ONES[grown.dtype.name]
    bounds = runs.bounds.tolist()
    for run in range(runs.rows.size):
        totals = [0.0] * 5
        for start in range(bounds[run], bounds[run + 1], PIECE):
            stop = min(start + PIECE, bounds[run + 1])
            x, up, size = wide[start:stop], grown[start:stop], stop - start
            up_sum = float(up.dot(ones[:size]))
            totals[0] += float(x.dot(ones64[:size]))
            totals[1] += float(x.dot(x))
            totals[2] += less * size + up_sum
            totals[3] += less * (size + 2.0 * up_sum) + float(up.dot(up))
            totals[4] += less * size + float(falling[start:stop].dot(ones[:size]))
        plain[run], exps[run] = totals[:2], totals[2:]
    return plain, exps


def _exponentials(runs: Runs, wide: Float64, buffers: Buffers) -> tuple[Array, Array, float]:
    """e^(x - shift) and e^(-x - shift), each less the number that comes third.

    Less 1 where all |x| <= 1: there E[e^x] - 1 may be 1e-9, which float32 exponentials would drown.
    float32 where nothing can overflow, else float64.
    """
    largest = max(float(runs.high.max()), -float(runs.low.min()))
    grown, falling = buffers.grown[: wide.size], buffers.falling[: wide.size]
    if largest <= SMALL:
        np.expm1(runs.values, out=grown)
        np.divide(grown, np.add(grown, 1.0, out=falling), out=falling)
        return grown, np.negative(falling, out=falling), 1.0
    if largest <= SAFE:
        return np.exp(runs.values, out=grown), np.reciprocal(grown, out=falling), 0.0
    shift = exp_sums.shifts(runs.low.astype(np.float64), runs.high.astype(np.float64))
    lengths = np.diff(runs.bounds)
    return (
        np.exp(wide - np.repeat(shift[:, 0], lengths)),
        np.exp(-wide - np.repeat(shift[:, 2], lengths)),
        0.0,
    )
