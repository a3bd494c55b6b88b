"""In which order were the episodes begun?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trimtab.traces.table import TraceTable

__all__ = ["in_order"]


def in_order(table: TraceTable) -> tuple[npt.NDArray[np.int64], str]:
    """(E,) places of the episodes as they began, and by what: the time where every episode has one, else the log's order."""
    if table.num_episodes and np.isfinite(table.time).all():
        return np.argsort(table.time, kind="stable"), "time"
    return np.arange(table.num_episodes), "order"
