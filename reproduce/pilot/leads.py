"""Who speaks first at an equal false-alarm budget? Thresholds are set on healthy runs, so no detector's taste enters.

For a series the score of a run is the largest rise over its own first windows that two windows in a row reach. The
threshold is the value that a share `BUDGET` of the healthy learning runs exceed; the averages share that budget, a quarter
each, so that "any average" and "the post-tool tail" are wrong equally often on a healthy run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reproduce.pilot.reading import Outcome

__all__ = ["AVERAGES", "BUDGET", "SERIES", "moments", "thresholds", "widest"]

BUDGET = 0.1  # share of healthy runs that may alarm
BASELINE = 3  # windows
AVERAGES = ("reward", "kl", "grad_norm", "entropy")


@dataclass(frozen=True)
class Series:
    """A reading of a slice; `sign` -1 where a fall is bad, 0 where either way is; logarithms unless `plain`."""

    key: str
    slice: str
    sign: int = 1
    plain: bool = False


SERIES = {
    "post_ratio": Series("tail_ratio/p95", "post_tool"),
    "post_tail": Series("drift/p95", "post_tool"),
    "text_tail": Series("drift/p95", "text"),
    "all_tail": Series("drift/p95", "all"),
    "reward": Series("aggregate/reward", "all", -1, True),
    "kl": Series("aggregate/kl", "all"),
    "grad_norm": Series("aggregate/grad_norm", "all"),
    "entropy": Series("aggregate/entropy", "all", 0),
}


def rises(run: Outcome, series: Series) -> tuple[list[int], np.ndarray]:
    """Steps, and how far two windows in a row lie beyond the median of the first three."""
    found = [
        r for r in run.view.series(series.key, series.slice) if r.status == "ok" and math.isfinite(r.value)
    ]
    values = np.array([r.value for r in found])
    if not series.plain:
        with np.errstate(
            divide="ignore"
        ):  # zero, as the gradient norm of a dead policy, is -inf and never a rise
            values = np.log(values)
    if values.size < BASELINE + 2:
        return [], np.zeros(0)
    moved = values[BASELINE:] - np.median(values[:BASELINE])
    moved = np.abs(moved) if series.sign == 0 else series.sign * moved
    both = np.minimum(moved[:-1], moved[1:])
    return [r.step for r in found[BASELINE + 1 :]], both


def tops(runs: Sequence[Outcome], name: str) -> list[float]:
    """The largest rise of a series in each run that has enough windows."""
    return [float(both.max()) for run in runs if (both := rises(run, SERIES[name])[1]).size]


def thresholds(healthy: Sequence[Outcome]) -> dict[str, float]:
    """Threshold of each series; +inf where no healthy run has enough windows to tell."""
    found = {}
    for name in SERIES:
        share = BUDGET / len(AVERAGES) if name in AVERAGES else BUDGET
        largest = tops(healthy, name)
        found[name] = float(np.quantile(largest, 1 - share, method="higher")) if largest else math.inf
    return found


def widest(reference: Sequence[Outcome]) -> dict[str, float]:
    """The largest rise any of these runs shows, series by series: what none of them passes."""
    return {name: max(tops(reference, name), default=math.inf) for name in SERIES}


def moments(run: Outcome, limits: Mapping[str, float]) -> dict[str, int | None]:
    """First step at which each series passed its threshold twice in a row; None when it never did or had no windows."""
    found: dict[str, int | None] = {}
    for name, series in SERIES.items():
        steps, both = rises(run, series)
        over = np.flatnonzero(both > limits[name])
        found[name] = steps[int(over[0])] if over.size else None
    return found
