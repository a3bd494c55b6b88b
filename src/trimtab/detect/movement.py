"""How quantities moved over an incident: the evidence that ranks its causes, live and stored alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from trimtab.catalog import bound
from trimtab.typing import Float64, Int64

_SERIES = {"mismatch": "mismatch/p95", "staleness": "staleness/p95", "update": "update/p95"}
_SLICES = ("post_tool", "text", "all")


class Movement(NamedTuple):
    """A quantity before an incident and during it; NaN where it was not observed."""

    before: float
    during: float


class Levels(NamedTuple):
    """Values of one quantity, and the steps they are of."""

    steps: Int64
    values: Float64


def movements(
    series: Callable[[str, str], Levels | None], lag: Levels | None, first: int, last: int
) -> Mapping[str, Movement]:
    """Return how each quantity moved, in the slice where it moved most.

    Args:
        series: takes (series, slice), and returns its levels; None where it was not observed.
        lag: age of rollouts in policy versions; None where it was not observed.
        first: first step of the incident.
        last: its last step so far, included.
    """
    moved: dict[str, Movement] = {}
    for name, key in _SERIES.items():
        for slice_name in _SLICES:
            if (levels := series(key, slice_name)) is None:
                continue
            one = movement(levels, first, last)
            known = moved.get(name)
            if known is None or not one.during <= known.during:
                moved[name] = one
    if lag is not None and lag.steps.size:
        moved["lag"] = movement(lag, first, last)
    return moved


def movement(levels: Levels, first: int, last: int) -> Movement:
    """Return the median of the steps before an incident, and the 90th percentile of those in it.

    >>> movement(Levels(np.arange(10), np.array([1.0] * 5 + [8.0] * 5)), 5, 9)
    Movement(before=1.0, during=8.0)
    """
    steps, values = levels
    before = values[(steps < first) & (steps >= first - bound("incident_gap"))]
    during = values[(steps >= first) & (steps <= last)]
    return Movement(
        float(np.median(before)) if before.size else math.nan,
        float(np.quantile(during, 0.9, method="higher")) if during.size else math.nan,
    )
