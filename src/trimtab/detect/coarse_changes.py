"""Large changes in a log that is too short for most rules: a look at its ends, no test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trimtab.catalog import bound
from trimtab.detect.whole_series import Series

_ENDS = 5  # values at each end
COARSE = "the reward by a third, entropy by half, KL beyond 0.2, the gradient's norm fivefold"
"""What `coarse_changes` looks for, in words."""


def coarse_changes(series: Mapping[tuple[str, str], Series]) -> tuple[str, ...]:
    """Say which metrics moved the bad way by much, from the first values of a log to its last.

    Args:
        series: (reading key, slice) -> steps and values.

    Returns:
        One phrase a metric. Bounds are by eye (`COARSE`); entropy may halve while the reward rises.

    Example:
        >>> steps = list(range(20))
        >>> coarse_changes({("aggregate/reward", "all"): (steps, [0.9] * 10 + [0.4] * 10)})
        ('the reward fell from 0.9 to 0.4',)
    """
    ends = {}
    for name in ("reward", "entropy", "kl", "grad_norm"):
        values = np.asarray(series.get((f"aggregate/{name}", "all"), ([], []))[1], np.float64)
        values = values[np.isfinite(values)]
        if values.size >= 2 * _ENDS:
            levels = np.convolve(values, np.full(_ENDS, 1.0 / _ENDS), "valid")
            ends[name] = float(levels[0]), float(levels.max()), float(levels[-1])
    changes = []
    first, best, last = ends.get("reward", (0.0, 0.0, 0.0))
    if best > 0 and last < best * bound("coarse_reward"):
        changes.append(f"the reward fell from {best:.3g} to {last:.3g}")
    rises = last > first
    first, _, last = ends.get("entropy", (0.0, 0.0, 0.0))
    if first > 0 and last < first * bound("coarse_entropy") and not rises:
        changes.append(f"entropy fell from {first:.3g} to {last:.3g}")
    first, _, last = ends.get("kl", (0.0, 0.0, 0.0))
    if last > bound("coarse_kl") and last > bound("coarse_kl_ratio") * first:
        changes.append(f"KL rose from {first:.3g} to {last:.3g}")
    first, _, last = ends.get("grad_norm", (0.0, 0.0, 0.0))
    if first > 0 and last > bound("coarse_grad") * first:
        changes.append(f"the gradient's norm rose from {first:.3g} to {last:.3g}")
    return tuple(changes)
