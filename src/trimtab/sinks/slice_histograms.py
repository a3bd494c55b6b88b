"""Histograms of log-ratios for trackers, off the stored sketches.

A sketch has 32 buckets an octave and both signs (`stats.histograms.log_buckets`); trackers show a few hundred
bins (W&B takes 512). So eight neighbouring buckets are added up, which changes no count and no edge that
stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.errors import SummaryError
from trimtab.measure.state.blocks import unpack_states
from trimtab.sinks.sink import SliceHistogram
from trimtab.stats import LogSketch
from trimtab.typing import Float64, Int64

SKETCHES = ("drift/sketch", "mismatch/sketch", "staleness/sketch", "total/sketch")
"""Summaries of a slice that become a histogram."""
_JOINED = 8
"""Buckets of a sketch that are one bin of a histogram."""


def row_histograms(row: dict[str, Any]) -> list[SliceHistogram]:
    """Return the histograms of a row of states; none of a row that is damaged.

    Args:
        row: a row of kind `states`.

    Returns:
        One histogram for each slice and log-ratio that has values.

    Example:
        for one in row_histograms(row): print(one.slice, one.key, one.counts.sum())
    """
    try:
        states = unpack_states(row["states"], wanted=SKETCHES)
    except SummaryError:
        return []
    return [
        histogram_of(name, key.partition("/")[0], state.summaries[key])
        for name, state in sorted(states.items())
        for key in SKETCHES
        if key in state.summaries and state.summaries[key].count
    ]


def histogram_of(slice_name: str, key: str, sketch: LogSketch) -> SliceHistogram:
    """Return the histogram of a sketch that has values.

    Args:
        slice_name: the slice.
        key: the log-ratio, as `drift`.
        sketch: of one row.

    Returns:
        Counts between finite edges; the outermost bins with values are the first and the last.

    Example:
        histogram_of("all", "drift", state.summaries["drift/sketch"]).counts.sum() == sketch.count
    """
    bins, (positive, negative) = _bins(sketch)
    counts = np.concatenate((negative[::-1], positive))
    whole = np.concatenate((-bins[:0:-1], bins))
    used = np.flatnonzero(counts)
    first, last = int(used[0]), int(used[-1])
    mean, count = sketch.mean(), sketch.count
    return SliceHistogram(
        slice_name, key, whole[first : last + 2], counts[first : last + 1], sketch.min, sketch.max,
        mean * count, (sketch.variance() + mean * mean) * count,
    )  # fmt: skip


def _bins(sketch: LogSketch) -> tuple[Float64, Int64]:
    """Edges (n + 1,) of |x| from 0 up, and counts (2, n) between them: without a sign, with one."""
    boundaries = sketch.grid.boundaries()
    rows = np.append(np.append(0, np.arange(1, boundaries.size - 2, _JOINED)), boundaries.size - 2)
    top = max(sketch.abs_max, float(boundaries[-2])) * (1.0 + 2.0**-20)
    return np.append(boundaries[rows], top), np.add.reduceat(sketch.signed_counts(), rows, axis=1)
