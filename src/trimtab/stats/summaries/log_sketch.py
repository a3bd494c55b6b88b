"""LogSketch: quantiles, shares and exponential moments of a stream of log-ratios, by slice cell, in one pass.

Shapes: N values, R rows (slice cells), nb buckets of one sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.stats.histograms import chunk_kernel as one_pass
from trimtab.stats.histograms import exponential_sums as exp_sums
from trimtab.stats.histograms.log_buckets import LogGrid
from trimtab.stats.summaries import input_checks as inputs
from trimtab.stats.summaries.log_sketch_queries import LogQueries
from trimtab.typing import Array, Float32


class LogSketch(LogQueries):
    """How heavy are the tails of |x|, and what are the mean, E[e^x], E[e^2x], E[e^-x] of each slice cell?

    x are log-ratios in nats, float32. Counted in buckets of 2^mantissa_bits an octave of |x|, over
    2^lowest_exponent..2^highest_exponent and both signs; counts and extremes are exact; sums add short
    float32 pieces in float64 (error below 1e-6 of the sum of sizes) and are safe at any |x|. nan, +inf and
    -inf are counted apart and enter nothing else. Rows are disjoint cells: `select` adds some up into one
    row, which alone answers queries; SummaryError otherwise, and on unequal parameters in `merge`. The bucket
    method: facts/diagnostics.md section 5; DDSketch (Masson et al. 2019, eq. 2) gives the same guarantee.

    >>> sketch = LogSketch(rows=2)
    >>> sketch.update(np.array([0.0, 0.5, -0.5, 8.0, np.nan], dtype=np.float32), np.array([0, 0, 0, 1, 1]))
    >>> both = sketch.select([0, 1])
    >>> both.count, both.num_nan, both.mean(), both.max
    (4, 1, 2.0, 8.0)
    >>> both.abs_exceedance(1.0)
    0.25
    """

    kind: ClassVar[bytes] = b"LS"
    adds_up: ClassVar[bool] = True

    def __init__(
        self, rows: int = 1, mantissa_bits: int = 5, lowest_exponent: int = -24, highest_exponent: int = 6
    ) -> None:
        self.rows = inputs.at_least_one("rows", rows)
        self.grid = LogGrid(mantissa_bits, lowest_exponent, highest_exponent)
        self._counts = np.zeros((rows, 2, self.grid.num_buckets), dtype=np.int64)
        self._non_finite = np.zeros((rows, 3), dtype=np.int64)
        self._sums = np.zeros((rows, 2))  # x, x^2
        self._exp_sums = np.zeros((rows, 3))  # shifted: see exp_sums
        self._low = np.full(rows, np.inf)
        self._high = np.full(rows, -np.inf)
        self._known = {}

    def update(self, values: npt.ArrayLike, rows: npt.ArrayLike | None = None) -> None:
        """Add values (N,) in nats; `rows` (N,) are integers in [0, R), needed unless R is 1.

        float64 is cast to float32. SummaryError names a row out of range or a wrong shape, and then adds
        nothing.
        """
        x = inputs.as_values(values)
        cells = inputs.as_rows(rows, x.size, self.rows)
        self._known = {}
        calm = exp_sums.empty(self.rows)
        for start in range(0, x.size, one_pass.CHUNK):
            part = slice(start, start + one_pass.CHUNK)
            self._add(x[part], None if cells is None else cells[part], calm)
        exp_sums.absorb(self._exp_state(), calm)

    def select(self, rows: Sequence[int]) -> LogSketch:
        """A one-row sketch of the given rows together. SummaryError if one does not exist or comes twice."""
        at = inputs.chosen(rows, self.rows)
        out = LogSketch.__new__(LogSketch)
        out.rows, out.grid, out._known = 1, self.grid, {}
        if len(at) == 1:  # nothing to add up
            one = slice(at[0], at[0] + 1)
            for name in ("_counts", "_non_finite", "_sums", "_exp_sums", "_low", "_high"):
                setattr(out, name, getattr(self, name)[one].copy())
            return out
        out._counts = np.zeros((1, *self._counts.shape[1:]), dtype=np.int64)
        for row in at:  # in place: a copy of all chosen rows would be large
            out._counts[0] += self._counts[row]
        out._non_finite, out._sums = (
            np.add.reduce(whole[at], axis=0, keepdims=True) for whole in (self._non_finite, self._sums)
        )
        out._exp_sums, out._low, out._high = exp_sums.empty(1)
        chosen = self._exp_sums[at], self._low[at], self._high[at]
        if at and exp_sums.is_calm(chosen):
            exp_sums.absorb_calm(
                out._exp_state(), (chosen[0].sum(axis=0), chosen[1].min(), chosen[2].max()), slice(None)
            )
            return out
        for row in at:
            one = slice(row, row + 1)
            exp_sums.absorb(out._exp_state(), (self._exp_sums[one], self._low[one], self._high[one]))
        return out

    def _add(self, x: Float32, cells: Array | None, calm: exp_sums.State) -> None:
        """One chunk: count what is not finite and leave it out, then add up row by row.

        `calm` gathers the exponential sums of the chunks that need no shift.
        """
        if x.size == 0:
            return
        runs = one_pass.group(x, cells, self.rows)
        if not (np.isfinite(runs.low).all() and np.isfinite(runs.high).all()):
            finite = np.isfinite(x)
            inputs.count_non_finite(x, cells, self._non_finite)
            self._add(x[finite], None if cells is None else cells[finite], calm)
            return
        one_pass.add_counts(runs, self.grid, self._counts.reshape(self.rows, -1))
        plain, exps = one_pass.sums(runs)
        self._sums[runs.rows] += plain
        more = (exps, runs.low.astype(np.float64), runs.high.astype(np.float64))
        if exp_sums.is_calm(more):
            exp_sums.absorb_calm(calm, more, runs.rows)
        else:
            exp_sums.absorb(self._exp_state(), more, runs.rows)

    def _parameters(self) -> tuple[int, ...]:
        return (self.rows, self.grid.mantissa_bits, self.grid.lowest, self.grid.highest)

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self._counts, self._non_finite, self._sums, self._exp_sums, self._low, self._high)

    def _absorb(self, other: LogSketch) -> None:
        self._known = {}
        self._counts += other._counts
        self._non_finite += other._non_finite
        self._sums += other._sums
        exp_sums.absorb(self._exp_state(), other._exp_state())

    def absorb_floats(self, values: npt.NDArray[np.float64]) -> None:
        """Merge sums and extremes (M, 7 R) of M sketches into this one, which has none yet."""
        self._known = {}
        plain, exps, low, high = np.split(values, np.array([2, 5, 6]) * self.rows, axis=1)
        self._sums += plain.sum(axis=0).reshape(-1, 2)
        exp_sums.absorb_many(self._exp_state(), (exps.reshape(-1, self.rows, 3), low, high))

    def _exp_state(self) -> exp_sums.State:
        return self._exp_sums, self._low, self._high
