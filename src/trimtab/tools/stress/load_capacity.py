"""Capacity of a target, from a ramp of load: highest throughput, the level that reached it, the knee."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.catalog import bound
from trimtab.tools.stress.load_loops import LoadPoint
from trimtab.traces.core.plural import counted


@dataclass(frozen=True)
class Capacity:
    """Capacity of a target, from levels of a closed loop."""

    knee: float  # callers beyond which calls only wait; NaN where the load did not saturate the target
    peak: float  # answered calls a second, the highest: mean of the levels that reach it
    reached: int  # fewest callers of a level that reached it
    knee_reason: str  # why a knee is missing; "" where there is one


def capacity_of(points: Mapping[int, LoadPoint]) -> Capacity:
    """Return peak, knee and the level that reached the peak.

    The knee exists only where the target was saturated: the last doubling of callers grew throughput by no
    more than `stress_saturated`. An ideal target of knee K grows it by 2 K/M, where M are the callers.

    Args:
        points: Callers -> what that load showed.

    Returns:
        The capacity.

    Example:
        capacity_of({1: one, 8: eight, 16: sixteen}).knee
    """
    knee, peak = capacity(points)
    enough = peak / bound("stress_flat")
    reached = min(
        (count for count, point in points.items() if point.throughput >= enough), default=max(points)
    )
    reason = _unsaturated(points)
    if not reason and math.isnan(knee):
        reason = "no call was answered"
    return Capacity(math.nan if reason else knee, peak, reached, reason)


def _unsaturated(points: Mapping[int, LoadPoint]) -> str:
    """Why a ramp shows no saturation; "" where it does."""
    top, maximum = max(points), bound("stress_saturated")
    below = max((point.throughput for count, point in points.items() if 2 * count <= top), default=0.0)
    callers = counted(top, "caller")
    if not below:
        return f"not saturated at {callers}: no level with half as many to compare with"
    growth = points[top].throughput / below
    if growth <= maximum:
        return ""
    return (
        f"not saturated at {callers}: throughput grew {growth:.2f}-fold over the last doubling of callers; "
        f"at saturation it grows {maximum:g}-fold at most"
    )


def capacity(points: Mapping[int, LoadPoint]) -> tuple[float, float]:
    """Return the knee and the highest throughput of a ramp, as if it had saturated the target.

    The knee is where the asymptotes of throughput cross: highest throughput times the latency of a call that
    need not wait (Little's law). Both are means over several levels of load, as one level of a tool whose
    times scatter is off by several per cent, and the highest of several is too high.

    Args:
        points: Callers -> what that load showed.

    Returns:
        Callers at the knee, and answered calls a second.

    Example:
        capacity({1: one, 8: eight, 16: sixteen})
    """
    best = max(point.throughput for point in points.values())
    knee = best * points[min(points)].latency.mean()
    free = [one for one in points.values() if one.concurrency <= bound("stress_unloaded") * knee]
    latencies = [one.latency for one in free or [points[min(points)]]]
    answered = sum(one.count for one in latencies)
    unloaded = (
        sum(one.count * one.mean() for one in latencies if one.count) / answered if answered else math.nan
    )
    full = [
        one.throughput
        for one in points.values()
        if one.concurrency >= knee and one.throughput >= bound("stress_plateau") * best
    ]
    peak = sum(full) / len(full) if full else best
    return peak * unloaded, peak
