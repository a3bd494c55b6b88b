"""The table of every reading and every bound, with unit, direction and source.

A reading's key is `<what>/<statistic>`. `docs/reference/metrics.md` is generated from this package: one file a family
of readings, `bounds` for the numbers rules compare with.
"""

from __future__ import annotations

from trimtab.catalog.definitions import Bound, Definition
from trimtab.catalog.episode_readings import EPISODES, JOINT
from trimtab.catalog.machine_readings import MACHINE
from trimtab.catalog.policy_readings import BOUNDARY_TOKENS, POLICY, PROB_BANDS
from trimtab.catalog.thresholds import BOUNDS
from trimtab.catalog.token_readings import LAG_BUCKETS, LOG_RATIOS, STATISTICS, TAUS, TOKENS
from trimtab.catalog.trace_readings import TRACE_BOUNDS, TRACE_READINGS
from trimtab.catalog.trainer_metrics import METRIC_NAMES, METRICS

__all__ = [
    "BOUNDARY_TOKENS", "BOUNDS", "LAG_BUCKETS", "LOG_RATIOS", "MAIN_SLICES", "METRIC_NAMES", "PROB_BANDS",
    "READINGS", "STATISTICS", "TAUS", "TRACE_BOUNDS", "TRACE_READINGS", "WINDOW_TOKENS",
    "WINDOW_TRAJECTORIES", "Bound", "Definition", "bound", "definition",
]  # fmt: skip

WINDOW_TOKENS = 2_000
"""Tokens a slice needs before a window is judged (default, not calibrated: a p99 then rests on 20 tokens)."""

WINDOW_TRAJECTORIES = 30
"""Trajectories a slice needs before a window is judged (default, not calibrated: the bootstrap resamples
trajectories)."""

MAIN_SLICES = ("all", "text", "post_tool")
"""Slices with tail indices, shifts between windows, intervals of k-hat and chi-square, quantiles of entropy
and mismatch by the sampler's probability (default, not calibrated, for the cost)."""

READINGS: dict[str, Definition] = {**TOKENS, **METRICS, **POLICY, **EPISODES, **JOINT, **MACHINE}


def definition(key: str) -> Definition:
    """Return the catalog row of a reading.

    Args:
        key: key of a reading, `<what>/<statistic>`.

    Returns:
        What it measures, with unit, direction and source. KeyError for a key no measure may emit.

    Example:
        >>> definition("entropy/mean").unit
        'nats'
    """
    return READINGS[key]


def bound(name: str) -> float:
    """Return the value of a bound of the rules of runs or of agent logs.

    Args:
        name: name of a bound in `BOUNDS` or `TRACE_BOUNDS`; KeyError for another.

    Returns:
        The value, in the unit of its row.

    Example:
        >>> bound("baseline")
        10.0
    """
    return (BOUNDS.get(name) or TRACE_BOUNDS[name]).value
