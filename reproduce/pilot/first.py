"""The tables of docs/evidence.md on who spoke first: thresholds, growing runs, collapsing runs, and what hangs on the thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from reproduce.pilot.leads import (
    ANY_RATE,
    AVERAGES,
    BUDGET,
    QUIET,
    SERIES,
    TAILS,
    lead_of,
    limits_of,
    moments,
    null_runs,
    steps_judged,
    tops,
    widest,
)
from reproduce.pilot.reading import Outcome
from reproduce.pilot.rules import PILOT_RULES
from reproduce.pilot.summary import GROWING, collapses, leads_of, open_collapses
from reproduce.pilot.tables import by_arm, steps_of, table

__all__ = ["collapsing", "growth", "sensitivity", "threshold_table"]

LABELS = [name.replace("_", " ") for name in SERIES]


def threshold_table(runs: Sequence[Outcome]) -> str:
    """Every threshold in words a reader can check."""
    quiet, wide = null_runs(runs), null_runs(runs, ANY_RATE)
    limits, largest, wider = limits_of(quiet), widest(quiet), limits_of(wide)
    rows = [
        [name.replace("_", " "), len(tops(quiet, name)), *(_size(name, found[name]) for found in (limits, largest)),
         len(tops(wide, name)), _size(name, wider[name])]
        for name in SERIES
    ]  # fmt: skip
    head = ["series", "quiet runs", "limit", "largest of the quiet", "runs at any rate", "limit at any rate"]
    return (
        f"### Thresholds\n\nSet on quiet runs alone: the {len(quiet)} healthy learning runs of {' and '.join(QUIET)} (constrained "
        "outputs, learning rate 2e-4). Left out: open outputs, whose tail is what is asked about; higher rates and stale batches, which "
        "raise tails by themselves; text-only runs, which have no post-tool tail; the frozen policy, whose drift is zero. A score is the "
        f"largest rise over the run's first three windows that two windows in a row reach. The limit is a further quiet run's upper prediction limit "
        f"(normal, t): at {BUDGET:.0%} for a tail and for the four averages together ({BUDGET / len(AVERAGES):.1%} each). At any rate: "
        f"the {len(wide)} healthy runs of {', '.join(ANY_RATE)}. Factors over the baseline; the reward's fall in its own "
        "unit; entropy either way.\n\n" + table(head, rows)
    )


def _size(name: str, limit: float) -> str | None:
    if not math.isfinite(limit):
        return None
    return f"-{limit:.2f}" if SERIES[name].plain else f"x{math.exp(limit):.2f}"


def growth(runs: Sequence[Outcome]) -> str:
    """Runs that grow and do not collapse: who left the quiet runs' range first."""
    limits, rows = widest(null_runs(runs)), []
    grown = [run for run in runs if run.arm in GROWING and run.healthy]
    other = [
        f"{np.median(leads):.0f}" if (leads := leads_of(grown, limits_of(null_runs(runs)), name)[0]) else "-"
        for name in ("post_tail", "all_tail")
    ]
    for arm, mine in by_arm(runs).items():
        if arm in GROWING:
            found = [moments(run, limits) for run in mine]
            cells = []
            for name in ("post_tail", "all_tail"):
                leads, _ = leads_of(mine, limits, name)
                cells.append(f"{np.median(leads):.0f} ({min(leads)} to {max(leads)})" if leads else None)
            rows.append([arm, *(steps_of([each[name] for each in found]) for name in SERIES), *cells])
    return (
        "### Runs that grow and do not collapse: who left the quiet runs' range first\n\nThresholds: the largest of the quiet, which "
        "none of them passes. Median step, and in how many runs. Lead: first average less the tail, median and range over seeds; a side "
        "that stayed inside counts as the end of the run. At the limits instead, which are wide for an average because four share a "
        f"budget, the median leads over all runs are longer: {' and '.join(other)} steps.\n\n"
        + table(["arm", *LABELS, "lead of post tail", "lead of all tail"], rows)
    )


def collapsing(runs: Sequence[Outcome]) -> str:
    """Every collapse: when each series passed its limit, if it did so in time."""
    limits, rows, lost = limits_of(null_runs(runs)), [], collapses(runs)
    for run in lost:
        found = moments(run, limits)
        rows.append([run.arm, run.seed, run.collapsed, steps_judged(run, "post_tail"), *(found[name] for name in SERIES),
                     lead_of(run, found, "post_ratio"), lead_of(run, found, "post_tail")])  # fmt: skip
    head = ["arm", "seed", "collapse", "post tail judged from", *LABELS, "lead of ratio", "lead of post tail"]
    spoke = [text for run in lost for text in _rules(run)]
    return (
        "### Collapsing runs: who spoke first\n\nStep at which each series passed the limit above, before the collapse: an empty cell did "
        "not pass it in time, and what passed it afterwards is left out. *Judged from*: the first step at which the post-tool tail "
        "has a baseline and two windows; empty when the collapse came before. The lead is the step of the first average less the tail's, "
        "a silent side counted as the collapse; negative: an average was first; empty: both silent. Of the pilot's six rules "
        f"these spoke before the collapse: {', '.join(spoke) or 'none'}.\n\n" + table(head, rows)
    )  # fmt: skip


def _rules(run: Outcome) -> list[str]:
    """The pilot's rules that fired before the run collapsed."""
    end = math.inf if run.collapsed is None else run.collapsed
    fired = [rule.name for rule in PILOT_RULES if (step := run.first[rule.name]) is not None and step < end]
    return [f"{name} at {run.first[name]} ({run.arm} {run.seed})" for name in fired]


def sensitivity(runs: Sequence[Outcome]) -> str:
    """The same leads at other thresholds, and how often each set is wrong on healthy runs that did not set it."""
    quiet, wide, lost = null_runs(runs), null_runs(runs, ANY_RATE), open_collapses(runs)
    tuning = [run for run in quiet if run.seed % 2 == 0]
    test = [run for run in lost if run.seed % 2]
    cases = (
        ("quiet, limit", quiet, limits_of(quiet), lost),
        ("quiet of the tuning half, limit; test half read", tuning, limits_of(tuning), test),
        ("quiet, largest", quiet, widest(quiet), lost),
        ("any rate, limit", wide, limits_of(wide), lost),
    )
    rows = []
    for label, null, limits, read in cases:
        others = [run for run in wide if run not in null]
        rows.append(
            [
                label,
                len(null),
                len(read),
                *(_lead_cell(read, limits, name) for name in TAILS),
                *_false(others, limits),
            ]
        )
    head = [
        "thresholds",
        "runs that set them",
        "collapses read",
        *(f"lead of {name.replace('_', ' ')}" for name in TAILS),
        "false: post tail",
        "false: text tail",
        "false: all tail",
        "false: any average",
    ]
    return (
        "### How much hangs on the thresholds\n\nOpen collapses. Lead: median over the runs in which either spoke (n of them; the tail in "
        "s). False: share of the healthy runs with constrained outputs, at any rate, that pass without having set the threshold.\n\n"
        + table(head, rows)
    )  # fmt: skip


def _lead_cell(runs: Sequence[Outcome], limits: Mapping[str, float], name: str) -> str:
    leads, spoke = leads_of(runs, limits, name)
    return f"{np.median(leads):.1f} (n {len(leads)}, s {spoke})" if leads else "(n 0, s 0)"


def _false(runs: Sequence[Outcome], limits: Mapping[str, float]) -> list[str | None]:
    if not runs:
        return [None] * 4
    found = [moments(run, limits) for run in runs]
    groups = (("post_tail",), ("text_tail",), ("all_tail",), AVERAGES)
    passed = [sum(any(each[name] is not None for name in group) for each in found) for group in groups]
    return [f"{count}/{len(runs)}" for count in passed]
