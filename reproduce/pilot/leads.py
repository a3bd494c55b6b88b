"""Who speaks first at an equal false-alarm budget? Thresholds are set on quiet runs, so no detector's taste enters.

For a series the score of a run is the largest rise over its own first windows that two windows in a row reach. The
threshold is the upper prediction limit (normal, Student's t) of a further run's score: a share `BUDGET` of quiet runs is
expected beyond it. The four averages share that budget, a quarter each (Bonferroni), so that "any average" is wrong on a quiet
run no more often than one tail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reproduce.pilot.reading import Outcome
from trimtab.detect.student import t_quantile

__all__ = ["ANY_RATE", "AVERAGES", "BUDGET", "QUIET", "SERIES", "TAILS", "lead_of", "limits_of", "moments", "null_runs", "steps_judged", "tops", "widest"]  # fmt: skip

BUDGET = 0.1  # share of quiet runs that may alarm
BASELINE = 3  # windows
AVERAGES = ("reward", "kl", "grad_norm", "entropy")
TAILS = ("post_ratio", "post_tail", "text_tail", "all_tail")

QUIET = ("constrained", "low_precision")
"""The null: healthy learning runs with constrained outputs at the base rate. No open outputs, whose tail is what is asked about; no
higher rate and no stale batch, which raise tails by themselves; no text-only run, which has no post-tool tail, so that tails
and averages are held to the same runs; not the frozen policy, whose drift is zero."""

ANY_RATE = (*QUIET, "constrained_fast", "constrained_warm")
"""The wider null, shown beside it: constrained outputs at every rate at which a run stayed healthy."""


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


def null_runs(runs: Iterable[Outcome], arms: Sequence[str] = QUIET) -> list[Outcome]:
    """The healthy learning runs of these arms."""
    return [run for run in runs if run.arm in arms and run.healthy]


def rises(run: Outcome, series: Series) -> tuple[list[int], np.ndarray]:
    """Steps, and how far two windows in a row lie beyond the median of the first three."""
    found = [
        r for r in run.view.series(series.key, series.slice) if r.status == "ok" and math.isfinite(r.value)
    ]
    values = np.array([r.value for r in found])
    if values.size < BASELINE + 2:
        return [], np.zeros(0)
    # a zero is -inf: as the gradient norm of a dead policy it is never a rise; a frozen policy's drift gives nan, no rise either
    with np.errstate(divide="ignore", invalid="ignore"):
        values = values if series.plain else np.log(values)
        moved = values[BASELINE:] - np.median(values[:BASELINE])
    moved = np.abs(moved) if series.sign == 0 else series.sign * moved
    return [r.step for r in found[BASELINE + 1 :]], np.minimum(moved[:-1], moved[1:])


def tops(runs: Sequence[Outcome], name: str) -> list[float]:
    """The largest rise of a series in each run that has enough windows."""
    return [float(both.max()) for run in runs if (both := rises(run, SERIES[name])[1]).size]


def limits_of(null: Sequence[Outcome]) -> dict[str, float]:
    """Threshold of each series: mean + t * sd * sqrt(1 + 1/n) of the null runs' scores; +inf with fewer than two of them.

    The one-sided prediction limit of one further value (Hahn 1970, J. Qual. Technol. 2, 115).
    """
    found = {}
    for name in SERIES:
        share = BUDGET / len(AVERAGES) if name in AVERAGES else BUDGET
        scores = tops(null, name)
        n = len(scores)
        if n < 2:
            found[name] = math.inf
            continue
        spread = float(np.std(scores, ddof=1)) * math.sqrt(1 + 1 / n)
        found[name] = float(np.mean(scores)) + t_quantile(share, n - 1) * spread
    return found


def widest(null: Sequence[Outcome]) -> dict[str, float]:
    """The largest rise any of these runs shows, series by series: what none of them passes."""
    return {name: max(tops(null, name), default=math.inf) for name in SERIES}


def moments(run: Outcome, limits: Mapping[str, float]) -> dict[str, int | None]:
    """First step at which each series passed its threshold twice in a row, before the run collapsed; None when it did not."""
    found: dict[str, int | None] = {}
    for name, series in SERIES.items():
        over = (step for step, both in zip(*rises(run, series), strict=True) if both > limits[name])
        found[name] = next((step for step in over if _in_time(run, step)), None)
    return found


def steps_judged(run: Outcome, name: str) -> int | None:
    """The first step before the collapse at which a series can pass a threshold at all; None when there is none."""
    steps = rises(run, SERIES[name])[0]
    return steps[0] if steps and _in_time(run, steps[0]) else None


def _in_time(run: Outcome, step: int) -> bool:
    return run.collapsed is None or step < run.collapsed


def lead_of(run: Outcome, found: Mapping[str, int | None], name: str) -> int | None:
    """Steps from a tail's first moment to the first average's; negative when an average was first.

    A silent side counts as the collapse, or as the end of a run without one: of a tail that is silent the lead is at most
    this. None where both are silent.
    """
    end = run.steps if run.collapsed is None else run.collapsed
    averages = [step for n in AVERAGES if (step := found[n]) is not None]
    own = found[name]
    if not averages and own is None:
        return None
    return min(averages, default=end) - (end if own is None else own)
