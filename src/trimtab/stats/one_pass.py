"""The hot loop of LogSketch: one chunk's values brought together by row, then summed run by run.

Measured with benchmarks/measure.py before it was written this way: a radix argsort of small row numbers costs 4 ns a
token where five weighted bincounts cost 12, and dot products of pieces sum a float32 array in 0.15 ns where reduceat
takes 0.6. Pieces of 9,984 stay under the length at which OpenBLAS would start threads (10,000), and are short enough
for float32 partial sums (relative error about 1e-7), which are folded in float64.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.stats import exp_sums
from trimtab.stats.grid import LogGrid

__all__ = ["CHUNK", "Runs", "add_counts", "group", "sums"]

CHUNK = 98_304  # values of one chunk: its temporaries stay in cache
PIECE = 9_984
FEW = 3
LONG = 32_768  # values a run from which counting raw numbers and folding them is the faster way
SMALL = 1.0  # nats
SAFE = 35.0  # nats: PIECE times e^(2 * 35) is a float32

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
_ONES: dict[str, Array] = {kind: np.ones(PIECE, dtype=kind) for kind in ("float32", "float64")}


class _Scratch(threading.local):
    """Scratch space of a thread's updates, written over by every chunk: fresh pages would cost 1 ns a token."""

    def __init__(self) -> None:
        self.grouped = np.empty(CHUNK, dtype=np.float32)
        self.grown = np.empty(CHUNK, dtype=np.float32)
        self.falling = np.empty(CHUNK, dtype=np.float32)


_SCRATCH = _Scratch()


class Runs(NamedTuple):
    """Values in runs of one row each: run i is values[bounds[i]:bounds[i + 1]] of row rows[i], none empty."""

    values: Float32
    rows: Int64
    bounds: Int64
    low: Float32
    high: Float32


def group(values: Float32, cells: Array | None, num_rows: int) -> Runs:
    """Runs of a non-empty chunk; `low` and `high` are not finite where a run holds something that is not."""
    if cells is None:
        bounds = np.array([0, values.size])
    elif num_rows <= FEW:
        values, bounds = _scan(values, cells, num_rows, _SCRATCH.grouped)
    else:
        values, bounds = _sort(values, cells, num_rows, _SCRATCH.grouped)
    rows = np.flatnonzero(bounds[1:] > bounds[:-1])
    bounds = np.append(bounds[rows], values.size)
    low, high = np.minimum.reduceat(values, bounds[:-1]), np.maximum.reduceat(values, bounds[:-1])
    return Runs(values, rows, bounds, low, high)


def _scan(values: Float32, cells: Array, num_rows: int, out: Float32) -> tuple[Float32, Int64]:
    """Few rows: one scan each is faster than a sort."""
    bounds = np.zeros(num_rows + 1, dtype=np.int64)
    for row in range(num_rows):
        at = np.flatnonzero(cells == row)
        start, stop = int(bounds[row]), int(bounds[row]) + at.size
        np.take(values, at, out=out[start:stop], mode="clip")
        bounds[row + 1] = stop
    return out[: values.size], bounds


def _sort(values: Float32, cells: Array, num_rows: int, out: Float32) -> tuple[Float32, Int64]:
    """Many rows: small unsigned row numbers are radix sorted."""
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells, np.arange(num_rows, dtype=cells.dtype), sorter=order)
    return np.take(values, order, out=out[: values.size], mode="clip"), np.append(starts, values.size)


def add_counts(runs: Runs, grid: LogGrid, table: Int64) -> None:
    """Add each run's histogram to its row of `table` (rows, 2 * buckets), in place."""
    long = runs.values.size >= LONG * runs.rows.size
    ids = grid.raw_ids(runs.values) if long else grid.signed_ids(runs.values)
    bounds = runs.bounds.tolist()
    for row, start, stop in zip(runs.rows.tolist(), bounds[:-1], bounds[1:], strict=True):
        if long:
            table[row] += grid.fold(np.bincount(ids[start:stop], minlength=grid.num_raw))
        else:
            table[row] += np.bincount(ids[start:stop], minlength=table.shape[1])


def sums(runs: Runs) -> tuple[Float64, Float64]:
    """Per run: (sum x, sum x^2), and the shifted sums of e^x, e^2x, e^-x as in `exp_sums`."""
    values, grown, falling, less = _exponentials(runs)
    plain, exps = np.zeros((runs.rows.size, 2)), np.zeros((runs.rows.size, 3))
    ones = _ONES[values.dtype.name]
    bounds = runs.bounds.tolist()
    for run in range(runs.rows.size):
        x_sum = xx_sum = up_sum = up2_sum = down_sum = 0.0
        for start in range(bounds[run], bounds[run + 1], PIECE):
            stop = min(start + PIECE, bounds[run + 1])
            x, up, one = values[start:stop], grown[start:stop], ones[: stop - start]
            x_sum += float(x.dot(one))
            xx_sum += float(x.dot(x))
            up_sum += float(up.dot(one))
            up2_sum += float(up.dot(up))
            down_sum += float(falling[start:stop].dot(one))
        count = less * (bounds[run + 1] - bounds[run])
        plain[run] = x_sum, xx_sum
        exps[run] = count + up_sum, count + 2.0 * less * up_sum + up2_sum, count + down_sum
    return plain, exps


def _exponentials(runs: Runs) -> tuple[Array, Array, Array, float]:
    """x, and e^(x - shift) and e^(-x - shift), both less the number that comes last.

    Less 1 where all |x| <= 1: there E[e^x] - 1 may be 1e-9, which float32 exponentials would drown.
    float32 where nothing can overflow, else float64.
    """
    values = runs.values
    largest = max(float(runs.high.max()), -float(runs.low.min()))
    grown, falling = _SCRATCH.grown[: values.size], _SCRATCH.falling[: values.size]
    if largest <= SMALL:
        np.expm1(values, out=grown)
        np.divide(grown, np.add(grown, 1.0, out=falling), out=falling)
        return values, grown, np.negative(falling, out=falling), 1.0
    if largest <= SAFE:
        np.exp(values, out=grown)
        return values, grown, np.reciprocal(grown, out=falling), 0.0
    wide, lengths = values.astype(np.float64), np.diff(runs.bounds)
    shift = exp_sums.shifts(runs.low.astype(np.float64), runs.high.astype(np.float64))
    up, down = np.repeat(shift[:, 0], lengths), np.repeat(shift[:, 2], lengths)
    return wide, np.exp(wide - up), np.exp(-wide - down), 0.0
