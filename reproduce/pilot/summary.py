"""The pilot's figures: counts, leads and a ratio of tails, each with an interval over seeds. What too few tell is None."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reproduce.pilot.leads import null_runs
from reproduce.pilot.reading import Outcome
from reproduce.pilot.variants import CHOSEN, LEAST, Choice, choices, leads_of, limits_for, medians, nulls
from trimtab.stats.student_t import t_quantile

__all__ = ["GROWING", "LEADS", "Figures", "collapses", "figures_of", "growing", "interval", "open_collapses", "paired_ratio", "seed_interval"]  # fmt: skip

DRAWS = 2000
GROWING = (
    "open",
    "open_in_distribution",
    "open_no_drift",
    "open_alpha05",
    "open_alpha20",
    "open_alpha50",
    "drift_aware",
)

Figures = dict[str, float | int | None]


def figures_of(runs: Sequence[Outcome]) -> Figures:
    """The pilot's figures; a lead or a ratio nobody can tell is None, with the number of runs beside it."""
    lost = collapses(runs)
    ratio, low, high = paired_ratio(runs, "open", "constrained")
    figures: Figures = {
        "num_runs": len(runs),
        "num_healthy": sum(run.healthy for run in runs),
        "num_improved": sum(run.healthy and run.improved for run in runs),
        "num_collapsed": len(lost),
        "num_collapsed_for_good": sum(run.ended_low for run in lost),
        "num_open_collapsed": len(open_collapses(runs)),
        "num_frozen_fallen": sum(not run.learning and run.collapsed is not None for run in runs),
        "num_null": len(null_runs(runs)),
        "num_null_seeds": len({run.seed for run in null_runs(runs)}),
    }
    for label, (which, name) in LEADS.items():
        figures |= _lead_figures(label, runs, which(runs), name)
    return figures | {
        "constrained_tail_ratio": ratio,
        "constrained_tail_ratio_low": low,
        "constrained_tail_ratio_high": high,
    }


def collapses(runs: Sequence[Outcome]) -> list[Outcome]:
    """The runs that learnt and collapsed; a frozen policy's reward falls with the tasks alone and does not count."""
    return [run for run in runs if run.learning and run.collapsed is not None]


def open_collapses(runs: Sequence[Outcome]) -> list[Outcome]:
    """Those of them with open-ended tool outputs."""
    return [run for run in collapses(runs) if run.arm.startswith("open")]


def growing(runs: Sequence[Outcome]) -> list[Outcome]:
    """Runs with open outputs at the base rate, none of which collapsed."""
    return [run for run in runs if run.arm in GROWING and run.healthy]


LEADS = {
    "lead_steps": (open_collapses, "post_ratio"),
    "lead_steps_tail_alone": (open_collapses, "post_tail"),
    "text_tail_lead_steps": (collapses, "text_tail"),
    "all_tail_lead_steps": (collapses, "all_tail"),
    "growth_lead_steps": (growing, "post_tail"),
    "growth_lead_steps_all_tokens": (growing, "all_tail"),
}
"""Figure -> the runs it is read in, and the tail whose lead over the first average it is."""


def paired_ratio(
    runs: Sequence[Outcome], above: str, below: str, name: str = "post_p99"
) -> tuple[float | None, float | None, float | None]:
    """Geometric mean over seeds of one arm's late value over another's at the same seed, with its 95 % t interval on the logs."""
    logs = [math.log(a / b) for a, b in _pairs(runs, above, below, name)]
    if not logs:
        return None, None, None
    centre = float(np.mean(logs))
    if len(logs) < LEAST:
        return round(math.exp(centre), 2), None, None
    half = t_quantile(0.025, len(logs) - 1) * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return tuple(round(math.exp(x), 2) for x in (centre, centre - half, centre + half))  # type: ignore[return-value]


def _pairs(runs: Sequence[Outcome], above: str, below: str, name: str) -> list[tuple[float, float]]:
    values = {(run.arm, run.seed): run.late[name] for run in runs if run.arm in (above, below)}
    both = [
        (value, values[below, seed])
        for (arm, seed), value in values.items()
        if arm == above and (below, seed) in values
    ]
    return [(a, b) for a, b in both if a > 0 and b > 0]


def _lead_figures(label: str, runs: Sequence[Outcome], read: Sequence[Outcome], name: str) -> Figures:
    leads, spoke = leads_of(read, limits_for(runs, CHOSEN), name)
    low, high = interval(runs, read, name)
    spread = medians(runs, read, name, choices(runs, name=name))
    return {
        f"{label}_n": len(leads),
        f"{label}_num_seeds": len({seed for seed, _ in leads}),
        f"{label}_num_spoke": spoke,
        f"{label}_median": float(np.median([lead for _, lead in leads])) if len(leads) >= LEAST else None,
        f"{label}_low": low,
        f"{label}_high": high,
        f"{label}_least_of_choices": min(spread, default=None),
        f"{label}_most_of_choices": max(spread, default=None),
    }


def interval(
    runs: Sequence[Outcome], read: Sequence[Outcome], name: str
) -> tuple[float | None, float | None]:
    """The widest of the 95 % intervals of the median lead, over thresholds of all quiet seeds and with each left out.

    The seeds of the judged runs and the seeds that set the thresholds are both few; resampling the first alone would call certain
    what hangs on one of the second.
    """
    found = []
    for left_out in nulls(runs):
        leads, _ = leads_of(read, limits_for(runs, Choice(left_out=left_out)), name)
        found.append(seed_interval(leads))
    low = [each[0] for each in found if each[0] is not None]
    high = [each[1] for each in found if each[1] is not None]
    return min(low, default=None), max(high, default=None)


def seed_interval(leads: Sequence[tuple[int, float]]) -> tuple[float | None, float | None]:
    """95 % percentile bootstrap of the median, drawing whole seeds; None for fewer than three of them."""
    groups = [[lead for seed, lead in leads if seed == each] for each in sorted({seed for seed, _ in leads})]
    if len(groups) < LEAST:
        return None, None
    rng = np.random.default_rng(0)
    drawn = [
        float(np.median(np.concatenate([groups[at] for at in rng.integers(0, len(groups), len(groups))])))
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)
