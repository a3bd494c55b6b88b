"""Who speaks first, with one kind of detector for every series? Thresholds are set on quiet runs, so no detector's taste enters.

For a series the score of a run is the largest rise over its own first windows that two windows in a row reach. Runs of the same
seed share world, tasks and starting weights and score alike whatever their arm, so a seed counts once: its score is the mean of its quiet runs'.
The threshold is the upper prediction limit (normal, Student's t) of a further seed: a share `BUDGET` of quiet seeds is expected beyond it.
Every series has the same share, so none sleeps behind a stricter limit than another; the price is that "any of four
averages" may be wrong on a quiet run up to four times as often as one tail. `shared` divides the share among the averages instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from reproduce.pilot.reading import QUANTILES, Outcome
from trimtab.stats.student_t import t_quantile

__all__ = ["ANY_RATE", "AVERAGES", "BUDGET", "EVERY", "QUIET", "SERIES", "TAILS", "at_quantile", "cut_off", "lead_of", "limits_of", "moments", "null_runs", "passes", "rises", "seed_scores", "steps_judged", "tops", "widest"]  # fmt: skip

BUDGET = 0.1  # share of quiet seeds that may alarm
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
    """A reading of a slice; `sign` -1 where a fall is looked for; logarithms unless `plain`."""

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
    "entropy": Series("aggregate/entropy", "all"),
}
"""Entropy: its rise against quiet runs, in which it only falls, up to twenty-fold. Read either way, as the first version of this analysis did,
the fall sets the threshold and the detector sleeps: it passes in none of the collapses. What passes has not turned or stopped: it has
fallen by less than a further quiet seed would have."""

UNRECORDED = {"post_ratio_p999"}
EVERY = SERIES | {
    f"{name}_{q}": replace(SERIES[name], key=SERIES[name].key.replace(QUANTILES[0], q))
    for name in TAILS for q in QUANTILES[1:] if f"{name}_{q}" not in UNRECORDED
}  # fmt: skip
"""The tails at the other quantiles too: which one is read is a choice like the threshold."""


def at_quantile(name: str, quantile: str) -> str | None:
    """The series of this tail at a quantile; None where it was not recorded."""
    found = name if quantile == QUANTILES[0] else f"{name}_{quantile}"
    return found if found in EVERY else None


def null_runs(runs: Iterable[Outcome], arms: Sequence[str] = QUIET) -> list[Outcome]:
    """The healthy learning runs of these arms."""
    return [run for run in runs if run.arm in arms and run.healthy]


@lru_cache(maxsize=4096)
def rises(run: Outcome, name: str) -> tuple[tuple[int, ...], np.ndarray]:
    """Steps, and how far two windows in a row lie beyond the median of the first three."""
    series = EVERY[name]
    found = [
        r for r in run.view.series(series.key, series.slice) if r.status == "ok" and math.isfinite(r.value)
    ]
    values = np.array([r.value for r in found])
    if values.size < BASELINE + 2:
        return (), np.zeros(0)
    # a zero is -inf: as the gradient norm of a dead policy it is never a rise; a frozen policy's drift gives nan, no rise either
    with np.errstate(divide="ignore", invalid="ignore"):
        values = values if series.plain else np.log(values)
        moved = series.sign * (values[BASELINE:] - np.median(values[:BASELINE]))
    return tuple(r.step for r in found[BASELINE + 1 :]), np.minimum(moved[:-1], moved[1:])


def tops(runs: Sequence[Outcome], name: str) -> list[float]:
    """The largest rise of a series in each run that has enough windows."""
    return [float(both.max()) for run in runs if (both := rises(run, name)[1]).size]


def seed_scores(null: Sequence[Outcome], name: str) -> list[float]:
    """One score a seed: the mean of its runs' largest rises."""
    return list(_scores(tuple(null), name))


@lru_cache(maxsize=4096)
def _scores(null: tuple[Outcome, ...], name: str) -> tuple[float, ...]:
    by_seed = (
        tops([run for run in null if run.seed == seed], name) for seed in sorted({r.seed for r in null})
    )
    return tuple(float(np.mean(scores)) for scores in by_seed if scores)


def limits_of(null: Sequence[Outcome], shared: bool = False) -> dict[str, float]:
    """Threshold of each series: mean + t * sd * sqrt(1 + 1/n) of the n seeds' scores; +inf with fewer than two of them.

    The one-sided prediction limit of one further value (Hahn 1970, J. Qual. Technol. 2, 115). `shared`: the averages share the budget
    of one tail (Bonferroni), which with three seeds is a limit few of them can reach.
    """
    found = {}
    for name in EVERY:
        share = BUDGET / len(AVERAGES) if shared and name in AVERAGES else BUDGET
        scores = seed_scores(null, name)
        n = len(scores)
        if n < 2:
            found[name] = math.inf
            continue
        spread = float(np.std(scores, ddof=1)) * math.sqrt(1 + 1 / n)
        found[name] = float(np.mean(scores)) + _deviate(share, n - 1) * spread
    return found


@lru_cache(maxsize=64)
def _deviate(share: float, degrees: int) -> float:
    return t_quantile(share, degrees)


def widest(null: Sequence[Outcome]) -> dict[str, float]:
    """The largest rise any of these runs shows, series by series: what none of them passes."""
    return {name: max(tops(null, name), default=math.inf) for name in EVERY}


def moments(run: Outcome, limits: Mapping[str, float]) -> dict[str, int | None]:
    """First step at which each series passed its threshold twice in a row, before the run collapsed; None when it did not."""
    return {name: _moment(run, name, limit) for name, limit in limits.items()}


@lru_cache(maxsize=65_536)
def _moment(run: Outcome, name: str, limit: float) -> int | None:
    over = (step for step, both in zip(*rises(run, name), strict=True) if both > limit)
    return next((step for step in over if _in_time(run, step)), None)


def passes(run: Outcome, name: str, limit: float) -> bool:
    """Did the series pass at any step, a collapse or not? What a detector that sleeps never does."""
    return bool((rises(run, name)[1] > limit).any())


def steps_judged(run: Outcome, name: str) -> int | None:
    """The first step before the collapse at which a series can pass a threshold at all; None when there is none."""
    steps = rises(run, name)[0]
    return steps[0] if steps and _in_time(run, steps[0]) else None


def cut_off(run: Outcome, name: str, step: int | None) -> bool:
    """Did the series pass at the first step at which it could? Then it may have moved at any time before."""
    return step is not None and step == steps_judged(run, name)


def _in_time(run: Outcome, step: int) -> bool:
    return run.collapsed is None or step < run.collapsed


def lead_of(
    run: Outcome, found: Mapping[str, int | None], name: str, averages: Collection[str] = AVERAGES
) -> int | None:
    """Steps from a tail's first moment to the first average's; negative when an average was first.

    A silent side counts as the collapse, or as the end of a run without one: of a tail that is silent the lead is at most
    this. None where both are silent.
    """
    end = run.steps if run.collapsed is None else run.collapsed
    first = [step for n in averages if (step := found[n]) is not None]
    own = found[name]
    if not first and own is None:
        return None
    return min(first, default=end) - (end if own is None else own)
