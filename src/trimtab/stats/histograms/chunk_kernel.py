"""The hot loop of LogSketch: one chunk's values brought together by row, then summed run by run.

Measured with benchmarks/measure.py before it was written this way: a radix argsort of small row numbers costs
4 ns a token where five weighted bincounts cost 12, and dot products of pieces sum a float32 array in 0.15 ns
where reduceat takes 0.6. Pieces of 9,984 stay under the length at which OpenBLAS would start threads
(10,000), and are short enough for float32 partial sums (relative error below 1e-6), which are folded in
float64. Sorting parts whose order stays in the second-level cache, and summing exponentials while they are
there, saves a sixth of the whole.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from trimtab.stats.histograms import exponential_sums as exp_sums
from trimtab.stats.histograms.log_buckets import LogGrid
from trimtab.typing import Array, Float32, Float64, Int64

CHUNK = 262_144  # values brought together at a time
PART = 65_536  # values of one sort: its order stays in cache
PIECE = 9_984  # values of one dot product
BLOCK = 3 * PIECE  # values whose exponentials stay in cache until they are summed
FEW = 3
LONG = 32_768  # values a run from which counting raw numbers and folding them is the faster way
SMALL = 1.0  # nats
SAFE = 35.0  # nats: PIECE times e^(2 * 35) is a float32

_ONES: dict[str, Array] = {kind: np.ones(PIECE, dtype=kind) for kind in ("float32", "float64")}


class _Scratch(threading.local):
    """Scratch space of a thread's updates, written over by every chunk: fresh pages would cost 1 ns a
    token."""

    def __init__(self) -> None:
        self.grouped = np.empty(CHUNK, dtype=np.float32)
        self.grown = np.empty(BLOCK, dtype=np.float32)
        self.falling = np.empty(BLOCK, dtype=np.float32)


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
    """Many rows: small unsigned row numbers are radix sorted, PART values at a time, and each part's rows put
    in place."""
    parts = [cells[start : start + PART] for start in range(0, cells.size, PART)]
    orders = [part.argsort(kind="stable") for part in parts]
    marks = np.arange(num_rows, dtype=cells.dtype)
    starts = np.array(
        [
            np.append(part.searchsorted(marks, sorter=order), part.size)
            for part, order in zip(parts, orders, strict=True)
        ]
    )
    lengths = np.diff(starts, axis=1)
    bounds = np.append(0, np.cumsum(lengths.sum(axis=0)))
    offsets = (bounds[:-1] + np.cumsum(lengths, axis=0) - lengths).tolist()
    for at, (order, froms, tos) in enumerate(zip(orders, starts.tolist(), offsets, strict=True)):
        part = values[at * PART : (at + 1) * PART]
        for start, stop, to in zip(froms, froms[1:], tos, strict=False):
            part.take(order[start:stop], out=out[to : to + stop - start], mode="clip")
    return out[: values.size], bounds


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
    size = runs.values.size
    cuts = np.union1d(runs.bounds, np.arange(0, size, PIECE))
    parts = np.empty((cuts.size - 1, 5))
    exponentials = _Exponentials(runs)
    start, ends, at = 0, cuts[1:].tolist(), 0
    for block in range(0, size, BLOCK):
        block_end = min(block + BLOCK, size)
        values, grown, falling = exponentials(block, block_end)
        ones = _ONES[values.dtype.name]
        while start < block_end:
            stop = ends[at]
            here = slice(start - block, stop - block)
            x, up, one = values[here], grown[here], ones[: stop - start]
            parts[at] = x.dot(one), x.dot(x), up.dot(one), up.dot(up), falling[here].dot(one)
            start, at = stop, at + 1
    totals = np.add.reduceat(parts, np.searchsorted(cuts, runs.bounds[:-1]))
    plain, exps, less = totals[:, :2], totals[:, 2:], exponentials.less
    if less:
        exps[:, 1] += 2.0 * exps[:, 0]
        exps += np.diff(runs.bounds)[:, np.newaxis]
    return plain, exps


class _Exponentials:
    """A block's x, and e^(x - shift) and e^(-x - shift), both less the number `less`.

    Less 1 where all |x| of the chunk are <= 1: there E[e^x] - 1 may be 1e-9, which float32 exponentials would
    drown. float32 where nothing can overflow, else float64. A block at a time, so that the sums find it in
    cache.
    """

    def __init__(self, runs: Runs) -> None:
        self.values = runs.values
        largest = max(float(runs.high.max()), -float(runs.low.min()))
        self.less = 1.0 if largest <= SMALL else 0.0
        self.shifts: tuple[Float64, Float64] | None = None
        if largest > SAFE:
            shift = exp_sums.shifts(runs.low.astype(np.float64), runs.high.astype(np.float64))
            lengths = np.diff(runs.bounds)
            self.shifts = np.repeat(shift[:, 0], lengths), np.repeat(shift[:, 2], lengths)

    def __call__(self, start: int, stop: int) -> tuple[Array, Array, Array]:
        x = self.values[start:stop]
        if self.shifts is not None:
            up, down = self.shifts
            wide = x.astype(np.float64)
            return wide, np.exp(wide - up[start:stop]), np.exp(-wide - down[start:stop])
        grown, falling = _SCRATCH.grown[: x.size], _SCRATCH.falling[: x.size]
        if self.less:
            np.expm1(x, out=grown)
            np.divide(grown, np.add(grown, 1.0, out=falling), out=falling)
            return x, grown, np.negative(falling, out=falling)
        np.exp(x, out=grown)
        return x, grown, np.reciprocal(grown, out=falling)
