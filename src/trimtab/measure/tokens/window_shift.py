"""How did the distribution of |log-ratio| move from one window of a slice to the next, and since its first
one?

A tail can grow while the median stays (stretch, tail mass), everything can move (Wasserstein), or only chance
moved (KS over its critical value at effective sizes, because tokens of one trajectory are not independent).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import Value
from trimtab.stats import ClusterTail, LogSketch, design_effect, ks_critical, ks_distance, wasserstein1

RATIOS_COMPARED = ("mismatch", "staleness", "total", "drift")
_TAILS = {0.95: "shift_tail_mass", 0.99: "shift_tail_mass_p99"}


@dataclass(frozen=True)
class _Past:
    """What is kept of a closed window: the histogram of |x|, its quantiles in nats, and the shares beyond two
    of them."""

    counts: npt.NDArray[np.int64]
    boundaries: npt.NDArray[np.float64]
    n_eff: float
    quantiles: dict[float, float]
    beyond: dict[float, float]


@dataclass
class WindowShift:
    """Remembers the first and the previous closed window of every slice and ratio; one object a run, fed in
    order.

    It starts anew with the process: after a resume, "first" is the first window after it. `readings_of` feeds
    it the slices `MAIN_SLICES` alone.
    """

    first: dict[tuple[str, str], _Past] = field(default_factory=dict)
    previous: dict[tuple[str, str], _Past] = field(default_factory=dict)

    def update(self, name: str, state: SliceState) -> Iterator[Value]:
        """Readings of slice `name` over a closed window against its earlier ones, then remember it.

        For mismatch, staleness, total and drift where observed: `<ratio>/n_eff` always; from the second
        window on `shift_ks` (share), `shift_ks_level` (over the 5 % critical value), `shift_w1` (nats),
        `shift_tail_mass` and `shift_tail_mass_p99` (change of the share of tokens beyond the earlier p95,
        p99), each against the previous window and, with `_first`, the first; and `stretch`, p99/p50 over that
        of the first window.
        """
        for ratio in RATIOS_COMPARED:
            sketch = state.summaries.get(f"{ratio}/sketch")
            if sketch is None or not sketch.count:
                continue
            now, n = _past(sketch, state.summaries[f"{ratio}/clusters"]), sketch.count
            yield Value(f"{ratio}/n_eff", now.n_eff, n)
            first = self.first.setdefault((name, ratio), now)
            if first is not now:
                yield from _compared(ratio, sketch, now, self.previous[name, ratio], "")
                yield from _compared(ratio, sketch, now, first, "_first")
                yield Value(f"{ratio}/stretch", _stretch(now) / _stretch(first), n)
            self.previous[name, ratio] = now


def _past(sketch: LogSketch, clusters: ClusterTail) -> _Past:
    effect = design_effect(clusters.cluster_counts())
    # where every value is in one bucket of the coarse grid, each cluster counts as one observation
    n_eff = float(clusters.num_clusters) if math.isnan(effect) else sketch.count / effect
    quantiles = dict(zip((0.5, *_TAILS), sketch.abs_quantiles([0.5, *_TAILS]), strict=True))
    beyond = dict(zip(_TAILS, sketch.abs_exceedances([quantiles[q] for q in _TAILS]), strict=True))
    counts, boundaries = sketch.abs_counts()
    return _Past(counts, boundaries, n_eff, quantiles, beyond)


def _compared(ratio: str, sketch: LogSketch, now: _Past, then: _Past, suffix: str) -> Iterator[Value]:
    n, distance = sketch.count, ks_distance(now.counts, then.counts)
    critical = ks_critical(now.n_eff, then.n_eff)
    yield Value(f"{ratio}/shift_ks{suffix}", distance, n)
    yield Value(f"{ratio}/shift_ks_level{suffix}", distance / critical, n)
    boundaries = np.maximum(
        now.boundaries, then.boundaries
    )  # they differ in the last one, the larger extreme
    yield Value(f"{ratio}/shift_w1{suffix}", wasserstein1(now.counts, then.counts, boundaries), n)
    shares = sketch.abs_exceedances([then.quantiles[q] for q in _TAILS])
    for (q, key), share in zip(_TAILS.items(), shares, strict=True):
        yield Value(f"{ratio}/{key}{suffix}", share - then.beyond[q], n)


def _stretch(window: _Past) -> float:
    """p99 / p50, both raised to the noise of a float32 log-softmax (the bound `tail_floor`)."""
    floor = bound("tail_floor")
    return max(window.quantiles[0.99], floor) / max(window.quantiles[0.5], floor)
