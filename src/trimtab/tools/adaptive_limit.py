"""Adaptive concurrency: additive increase, multiplicative decrease, on latency and on errors.

Calls are counted in rounds. A round that was saturated and not congested raises the limit, by half until the
first congestion and by a twentieth (one at least) after it. A congested round cuts it. Congested is: mean
latency above `tolerance` times the latency without a queue, or a tenth of the calls refused for load. The
more are refused, the deeper the cut. What a server asks with Retry-After is obeyed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.catalog import bound
from trimtab.tools.limits import Limiter


@dataclass(frozen=True)
class AdaptiveOptions:
    """Bounds and steps of `AdaptiveLimit`. Derivations are in the catalog, under `adaptive_...`."""

    initial: int = 8
    minimum: int = 1
    maximum: int = 1024
    tolerance: float = bound("adaptive_tolerance")  # of the latency without a queue
    latency_cut: float = bound("adaptive_latency_cut")
    error_cut: float = bound("adaptive_error_cut")  # the deepest
    refused_cut: float = bound("adaptive_refused_cut")  # where the server names a time to wait
    error_frac: float = bound("adaptive_error_frac")
    growth_fast: float = bound("adaptive_growth_fast")
    growth_slow: float = bound("adaptive_growth_slow")
    round_calls: int = int(bound("adaptive_round"))  # calls of a round, or the limit where that is more
    probe_every: int = int(bound("adaptive_probe"))  # rounds between two probes with half the limit


class AdaptiveLimit:
    """Moves the limit of a `Limiter` after what calls report to `done`. Times are of one monotonic clock."""

    __slots__ = (
        "_changed", "_errors", "_growing", "_limit", "_num", "_probe_from", "_rounds", "_seconds", "_series",
        "_target", "baseline_s", "limiter", "options",
    )  # fmt: skip

    def __init__(self, limiter: Limiter, options: AdaptiveOptions | None = None) -> None:
        self.limiter, self.options = limiter, options or AdaptiveOptions()
        self._limit = float(self.options.initial)
        self._changed = float("-inf")
        self._growing = True
        self.baseline_s = 0.0  # mean latency without a queue of our making; 0: not known yet
        self._num = self._errors = self._rounds = 0
        self._seconds = self._probe_from = 0.0
        self._target = float("inf")  # fast growth ends here: what the last series of cuts began with
        self._series = False  # was the last change a cut?
        limiter.limit = self.options.initial

    def done(self, start: float, end: float, *, congested: bool = False, refused: bool = False) -> None:
        """Report a call that ran from `start` to `end`; `refused`: the server named a time to wait."""
        if start < self._changed:
            return  # sent under another limit: says nothing of this one
        self._num += 1
        if congested:
            self._errors += 1
            if refused:
                self._cut(self.options.refused_cut, end)
                return
        else:
            self._seconds += end - start
        if self._num >= self.options.round_calls and self._num >= self._limit:
            self._close_round(end)

    def restart(self, now: float) -> None:
        """Grow fast again, as after an outage, up to the first cut of it: overload opens breakers as well."""
        self._growing = True
        self._set(self._limit, now)

    def _close_round(self, now: float) -> None:
        options, good = self.options, self._num - self._errors
        errors = self._errors / self._num
        mean = self._seconds / good if good else 0.0
        self._rounds += 1
        if self._probe_from:
            self._end_probe(mean, now)
        elif errors >= options.error_frac:
            self._cut(max(options.error_cut, min(1.0 - errors, options.latency_cut)), now)
        elif good and self._slow(mean):
            self._cut(options.latency_cut, now)
        elif self._rounds >= options.probe_every and self._limit >= 2 * options.minimum:
            self._probe_from = self._limit
            self._set(max(self._limit / 2, options.minimum), now)
        elif self.limiter.saturated:
            step = max(1.0, options.growth_slow * self._limit)
            grown = self._limit + step
            if self._growing:
                fast = self._limit * options.growth_fast
                self._growing = fast < self._target
                grown = fast if self._growing else max(min(fast, self._target), grown)
            self._series = False
            self._set(min(grown, options.maximum), now)
        else:
            self._clear()

    def _slow(self, mean: float) -> bool:
        """Learn the latency without a queue; is this round's mean too far above it?"""
        base = self.baseline_s
        if not base or self._limit <= self.options.minimum:
            self.baseline_s = mean
            return False
        if mean < base:
            self.baseline_s = base + 0.25 * (mean - base)
            return False
        return mean > self.options.tolerance * base

    def _end_probe(self, mean: float, now: float) -> None:
        """Half the load showed `mean`: the latency without a queue, unless half is too much as well."""
        self._rounds = 0
        before, self._probe_from = self._probe_from, 0.0
        if mean:
            self.baseline_s += 0.5 * (mean - self.baseline_s)
        self._set(before, now)

    def _cut(self, factor: float, now: float) -> None:
        self._growing = False
        self._probe_from = 0.0
        if not self._series:
            self._series, self._target = True, self._limit * factor
        self._set(max(self._limit * factor, self.options.minimum), now)

    def _set(self, limit: float, now: float) -> None:
        self._limit, self._changed = limit, now
        self.limiter.limit = max(int(limit), 1)
        self._clear()

    def _clear(self) -> None:
        self._num = self._errors = 0
        self._seconds = 0.0
        self.limiter.saturated = bool(self.limiter.waiting)
