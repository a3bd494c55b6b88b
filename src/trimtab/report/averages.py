"""The averages of a run as views show them: from step 1 on, before any window has closed and anything is
judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trimtab.measure.sequences.aggregates import AGGREGATES, trainer_aggregates
from trimtab.report.run_view import RunView

_ENOUGH = 10
"""Readings from which a series of windows is shown, and no longer the steps (default, not calibrated)."""


class Series(NamedTuple):
    """One average: `value[i]` at `step[i]`."""

    step: list[int]
    value: list[float]


def averages_of(view: RunView) -> dict[str, Series]:
    """Return the averages by name, in the order of `AGGREGATES`: of closed windows, or, while few have
    closed, of steps."""
    steps = _of_steps(view.steps)
    shown: dict[str, Series] = {}
    for name in AGGREGATES:
        readings = view.series(f"aggregate/{name}", "all")
        own = steps.get(name, Series([], []))
        if len(readings) < _ENOUGH and len(own.step) > len(readings):
            shown[name] = own
        elif readings:
            shown[name] = Series([r.step for r in readings], [r.value for r in readings])
    return shown


def _of_steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, Series]:
    """What the trainer logged at each step, by our names."""
    series: dict[str, Series] = {}
    for row in rows:
        for name, value in trainer_aggregates(row["metrics"]).items():
            one = series.setdefault(name, Series([], []))
            one.step.append(int(row["step"]))
            one.value.append(float(value))
    return series


def averages_line(averages: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the latest averages in one line; empty where there are none.

    >>> averages_line({"reward": {"step": 3, "value": 0.5}})
    'averages (latest): reward 0.5'
    """
    values = {name: row["value"] for name, row in averages.items()}
    shown = [f"{n} {v:.4g}" if math.isfinite(v) else f"{n} not finite" for n, v in values.items()]
    return f"averages (latest): {', '.join(shown)}" if shown else ""
