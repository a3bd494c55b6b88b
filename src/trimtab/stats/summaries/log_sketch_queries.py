"""What a one-row LogSketch answers. Values in nats; quantiles are over finite values; empty is nan, never
0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.errors import SummaryError
from trimtab.stats.histograms import exponential_sums as exp_sums
from trimtab.stats.histograms import quantiles as ax
from trimtab.stats.histograms.log_buckets import LogGrid
from trimtab.stats.summaries import input_checks as inputs
from trimtab.stats.summaries.base import RowSummary
from trimtab.typing import Float64, Int64


class LogQueries(RowSummary):
    """The questions; the state and how it grows are in `LogSketch`. SummaryError unless there is one row.

    What a question needs of the histogram is made once and kept in `_known` until the state grows.
    """

    rows: int
    grid: LogGrid
    _counts: Int64
    _non_finite: Int64
    _sums: Float64
    _exp_sums: Float64
    _low: Float64
    _high: Float64
    _known: dict[str, ax.Axis]

    @property
    def count(self) -> int:
        """How many finite values?"""
        known = self._known.get("size")
        return known.total if known is not None else int(self._one()._counts.sum())

    @property
    def max(self) -> float:
        """Largest finite x, exact."""
        return float(self._high[0]) if self.count else float("nan")

    @property
    def min(self) -> float:
        """Smallest finite x, exact."""
        return float(self._low[0]) if self.count else float("nan")

    @property
    def abs_max(self) -> float:
        """Largest finite |x|, exact."""
        return max(abs(self.max), abs(self.min))

    def mean(self) -> float:
        """Mean of x, to 1e-6 of the mean size."""
        return float(self._sums[0, 0]) / self.count if self.count else float("nan")

    def variance(self) -> float:
        """Population variance of x; absolute error below 2e-6 times the mean square."""
        if not self.count:
            return float("nan")
        return max(0.0, float(self._sums[0, 1]) / self.count - self.mean() ** 2)

    def log_mean_exp(self, power: int) -> float:
        """log of the mean of e^(power x), power 1, 2 or -1, to 2e-6 and finite for any finite x."""
        if power not in exp_sums.POWERS:
            raise SummaryError(f"e^({power} x) is not summed; power is one of {exp_sums.POWERS}")
        if not self.count:
            return float("nan")
        total = exp_sums.log_sum(self._exp_sums[0], float(self._low[0]), float(self._high[0]), power)
        return total - float(np.log(self.count))

    def quantile(self, q: float) -> float:
        """x_(ceil(q n)) of signed x, within 1.6 % of its size in range; q = 0 and 1 give the exact extremes.

        Below 2^lowest_exponent in size it reads 0 (or the extreme); beyond 2^highest_exponent only the sign
        and the extremes are known.
        """
        (value,) = ax.quantiles(self._side("upper"), [q])
        return self.min if q == 0.0 else value

    def abs_quantile(self, q: float) -> float:
        """The same order statistic of |x|: what size do only 1 - q of the tokens exceed?"""
        return self.abs_quantiles([q])[0]

    def abs_quantiles(self, qs: Sequence[float]) -> list[float]:
        """`abs_quantile` of each q, at little more than the cost of one."""
        return ax.quantiles(self._side("size"), qs)

    def abs_exceedance(self, tau_nats: float) -> float:
        """Share of values with |x| > tau_nats: F(tau) of a ratio is abs_exceedance(log tau).

        Interpolated in the bucket that tau cuts, 3 % wide: wrong by at most the share of values in that
        bucket. That is small for many values of a smooth law, but up to 1 for few values, or for values on a
        grid (low precision). `abs_exceedance_bounds` are exact.
        """
        return self.abs_exceedances([tau_nats])[0]

    def abs_exceedance_bounds(self, tau_nats: float) -> tuple[float, float]:
        """Smallest and largest share of values with |x| > tau_nats that the histogram allows; the true one is
        inside.

        Equal where tau lies in no occupied bucket, or beyond the extremes. nan when empty.
        """
        axis = self._side("size")
        if axis.total == 0:
            return float("nan"), float("nan")
        above = int(axis.number[axis.low > tau_nats].sum())
        # smaller values are counted as 0
        high = np.maximum(axis.high, min(2.0**self.grid.lowest, axis.maximum))
        cut = int(axis.number[(axis.low <= tau_nats) & (tau_nats < high)].sum())
        return above / axis.total, (above + cut) / axis.total

    def abs_exceedances(self, taus_nats: Sequence[float]) -> list[float]:
        """`abs_exceedance` of each tau, at little more than the cost of one."""
        return [1.0 - share for share in ax.shares_below(self._side("size"), taus_nats, inclusive=True)]

    def share_below(self, bound: float) -> float:
        """Share of values with x < bound, interpolated inside the bucket that `bound` cuts: wrong by at most
        the share in it."""
        return ax.shares_below(self._side("upper"), [bound])[0]

    def abs_cdf(self) -> tuple[Float64, Float64]:
        """For a plot: upper edges of the occupied buckets of |x|, and the share of values at or under
        each."""
        axis = self._side("size")
        return axis.high, axis.upto / max(1, axis.total)

    def abs_counts(self) -> tuple[Int64, Float64]:
        """Counts (K,) of |x| and finite bucket edges (K + 1,), the last at the largest |x| or the end of the
        grid."""
        boundaries = self.grid.boundaries().copy()
        boundaries[-1] = max(float(boundaries[-2]), self.abs_max) if self.count else boundaries[-2]
        return self._one()._counts[0].sum(axis=0), boundaries

    def signed_counts(self) -> Int64:
        """Counts (2, K) by bucket of |x|: of x with no sign first, then of x with one."""
        return np.array(self._one()._counts[0])

    def abs_mass_top_share(self, fraction: float) -> float:
        """Which share of the sum of |x| do the largest `fraction` of the values hold? nan if all are zero."""
        return ax.top_mass_share(self._side("size"), fraction)

    def tail_values(self, side: str, k: int) -> Float64:
        """About the k largest ("upper", descending) or smallest ("lower", ascending) x, or largest |x|
        ("size", descending), spread in their buckets.

        Deterministic; the first one is exact. For a tail fit after a reload, where the values themselves are
        gone.
        """
        values = ax.spread(self._side(side), k)
        return -values if side == "lower" else values

    def buckets(self, side: str) -> tuple[Float64, Int64]:
        """Middle and number of each occupied bucket, largest first; sides as in `tail_values`, "lower" as
        -x."""
        axis = self._side(side)
        return ((axis.low + axis.high) / 2.0)[::-1], axis.number[::-1]

    def _side(self, side: str) -> ax.Axis:
        """The occupied buckets of x ("upper"), -x ("lower") or |x| ("size"), made at the first question."""
        known = self._known.get(side)
        if known is None:
            known = self._known[side] = self._new_axis(side)
        return known

    def _new_axis(self, side: str) -> ax.Axis:
        if side not in ("upper", "lower", "size"):
            raise SummaryError(f"side is 'upper', 'lower' or 'size', not {side!r}")
        low, high = float(self._one()._low[0]), float(self._high[0])
        if side == "lower":
            return ax.signed_axis(self.grid, self._counts[0, ::-1], -high, -low)
        make = ax.signed_axis if side == "upper" else ax.abs_axis
        return make(self.grid, self._counts[0], low, high)

    def _one(self) -> LogQueries:
        inputs.need_one_row(self.rows)
        return self
