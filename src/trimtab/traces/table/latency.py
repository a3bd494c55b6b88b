"""How long do a tool's calls take: quantiles, and between which values the 95th percentile lies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.stats.intervals import quantile_places
from trimtab.traces.table.types import ToolRow


def time_row(row: ToolRow, seconds: npt.NDArray[Any]) -> None:
    """Set what the row says of the latencies of its calls, in seconds.

    >>> row = ToolRow()
    >>> time_row(row, np.array([0.5] * 19 + [250.0]))
    >>> row.timed, round(row.p95, 3), row.p95_low, row.p95_high
    (20, 12.975, 0.5, nan)
    """
    row.timed = seconds.size
    if not seconds.size:
        return
    row.p50, row.p95, row.p99 = (float(q) for q in np.quantile(seconds, [0.5, 0.95, 0.99]))
    places = quantile_places(seconds.size, 0.95)
    ranked = np.partition(seconds, [place for place in places if place is not None] or [0])
    row.p95_low, row.p95_high = (math.nan if place is None else float(ranked[place]) for place in places)
