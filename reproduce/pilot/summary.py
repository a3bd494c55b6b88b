"""The pilot's figures: counts, leads with intervals over runs, the ratio of tails. What too few runs tell is None."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from reproduce.pilot.leads import lead_of, limits_of, moments, null_runs, widest
from reproduce.pilot.reading import Outcome

__all__ = ["GROWING", "Figures", "collapses", "figures_of", "interval", "leads_of", "open_collapses"]

DRAWS = 2000
LEAST = 3  # runs; with fewer neither median nor interval is given
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
    limits, lost = limits_of(null_runs(runs)), open_collapses(runs)
    widths, grown = widest(null_runs(runs)), [run for run in runs if run.arm in GROWING and run.healthy]
    late = {
        arm: [run.late["post_p99"] for run in runs if run.arm == arm and math.isfinite(run.late["post_p99"])]
        for arm in ("open", "constrained")
    }
    return {
        "num_runs": len(runs),
        "num_healthy": sum(run.healthy for run in runs),
        "num_collapsed": len(collapses(runs)),
        "num_open_collapsed": len(lost),
        "num_frozen_fallen": sum(not run.learning and run.collapsed is not None for run in runs),
        "num_null": len(null_runs(runs)),
        **_lead_figures("lead_steps", lost, limits, "post_ratio"),
        **_lead_figures("lead_steps_tail_alone", lost, limits, "post_tail"),
        **_lead_figures("text_tail_lead_steps", collapses(runs), limits, "text_tail"),
        **_lead_figures("all_tail_lead_steps", collapses(runs), limits, "all_tail"),
        **_lead_figures("growth_lead_steps", grown, widths, "post_tail"),
        **_lead_figures("growth_lead_steps_all_tokens", grown, widths, "all_tail"),
        "constrained_tail_ratio": round(float(np.mean(late["open"]) / np.mean(late["constrained"])), 2)
        if all(late.values())
        else None,
    }


def collapses(runs: Sequence[Outcome]) -> list[Outcome]:
    """The runs that learnt and collapsed; a frozen policy's reward falls with the tasks alone and does not count."""
    return [run for run in runs if run.learning and run.collapsed is not None]


def open_collapses(runs: Sequence[Outcome]) -> list[Outcome]:
    """Those of them with open-ended tool outputs."""
    return [run for run in collapses(runs) if run.arm.startswith("open")]


def leads_of(runs: Sequence[Outcome], limits: Mapping[str, float], name: str) -> tuple[list[int], int]:
    """The leads of a tail in the runs in which it or an average spoke, and in how many of them the tail did."""
    found = [(run, moments(run, limits)) for run in runs]
    leads = [lead for run, each in found if (lead := lead_of(run, each, name)) is not None]
    return leads, sum(each[name] is not None for _, each in found)


def _lead_figures(label: str, runs: Sequence[Outcome], limits: Mapping[str, float], name: str) -> Figures:
    leads, spoke = leads_of(runs, limits, name)
    low, high = interval(leads, np.median)
    median = float(np.median(leads)) if len(leads) >= LEAST else None
    return {
        f"{label}_n": len(leads),
        f"{label}_num_spoke": spoke,
        f"{label}_median": median,
        f"{label}_low": low,
        f"{label}_high": high,
    }


def interval(values: Sequence[float], of: Callable[[np.ndarray], float]) -> tuple[float | None, float | None]:
    """95 % percentile bootstrap over runs; None for fewer than three."""
    if len(values) < LEAST:
        return None, None
    rng = np.random.default_rng(0)
    sample = np.asarray(values, dtype=float)
    drawn = [of(rng.choice(sample, sample.size)) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)
