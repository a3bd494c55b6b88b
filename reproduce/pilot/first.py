"""The tables of docs/reference/pilot.md on who spoke first: thresholds, growing runs, collapsing runs, and what hangs on the thresholds."""

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
    lead_of,
    limits_of,
    moments,
    null_runs,
    seed_scores,
    steps_judged,
    widest,
)
from reproduce.pilot.made_of import entropy_note
from reproduce.pilot.reading import Outcome
from reproduce.pilot.rules import PILOT_RULES
from reproduce.pilot.summary import GROWING, collapses, growing, open_collapses
from reproduce.pilot.tables import by_arm, steps_of, table
from reproduce.pilot.variants import (
    CHOSEN,
    RULES,
    WITHOUT,
    Choice,
    choices,
    leads_of,
    limits_for,
    medians,
    nulls,
)

__all__ = ["collapsing", "false_alarms", "growth", "sensitivity", "threshold_table"]

LABELS = [name.replace("_", " ") for name in SERIES]


def threshold_table(runs: Sequence[Outcome]) -> str:
    """Every threshold in words a reader can check, and what becomes of it when a seed is left out."""
    quiet, left = null_runs(runs), nulls(runs)[1:]
    limits, shared, largest, wider = (limits_of(quiet), limits_of(quiet, shared=True), widest(quiet), limits_of(null_runs(runs, ANY_RATE)))  # fmt: skip
    less = [limits_for(runs, Choice(left_out=seed)) for seed in left]
    rows = [
        [name.replace("_", " "), len(seed_scores(quiet, name)), *(_size(name, found[name]) for found in (limits, *less, shared, largest, wider))]
        for name in SERIES
    ]  # fmt: skip
    head = ["series", "seeds", "limit, each", *(f"limit without seed {seed[0]}" for seed in left), "limit, shared", "largest", "limit at any rate"]  # fmt: skip
    return (
        f"### Thresholds\n\nSet on quiet runs alone: the {len(quiet)} healthy learning runs of {' and '.join(QUIET)} (constrained "
        "outputs, learning rate 2e-4). Left out: open outputs, whose tail is what is asked about; higher rates and stale batches, which "
        "raise tails by themselves; text-only runs, which have no post-tool tail; the frozen policy, whose drift is zero. A run's score is the "
        "largest rise over its first three windows that two windows in a row reach; a seed's score is the mean of its runs', which are nearly the same run. "
        f"*Limit, each* (used wherever nothing else is said): the upper prediction limit of a further seed (normal, t), at {BUDGET:.0%} for each series. *Limit, "
        f"shared*: the four averages share those {BUDGET:.0%} ({BUDGET / len(AVERAGES):.1%} each); with three seeds hardly an average can reach it. *Largest*: the largest quiet run, which none passes. At any rate: "
        f"the healthy runs of {', '.join(ANY_RATE)}. Factors over the run's own first windows; the reward's fall in its own unit. The entropy's factor is below 1 because "
        "it falls in every quiet run: what passes has two windows in a row above that share of its own first ones, which is to fall more slowly than quiet runs do, not to stop falling.\n\n" + table(head, rows)
    )  # fmt: skip


def _size(name: str, limit: float) -> str | None:
    if not math.isfinite(limit):
        return None
    return f"-{limit:.2f}" if SERIES[name].plain else f"x{math.exp(limit):.2f}"


def growth(runs: Sequence[Outcome]) -> str:
    """Runs that grow and do not collapse: who left the quiet runs' range first."""
    limits, rows = limits_for(runs, CHOSEN), []
    for arm, mine in by_arm(runs).items():
        if arm in (*GROWING, "frozen"):
            found = [moments(run, limits) for run in mine]
            cells = [
                _lead_range(mine, limits, name, each)
                for name in ("post_tail", "all_tail")
                for each in ("none", "both")
            ]
            rows.append([arm, *(steps_of([each[name] for each in found]) for name in SERIES), *cells])
    return (
        "### Runs that grow and do not collapse: who passed first\n\nThresholds: limit, each. Median step, and in how many runs. Lead: first "
        "average less the tail, median and range over seeds; a side that stayed inside counts as the end of the run; *bare*: reward and entropy do "
        f"not count as averages. {entropy_note(runs)}The `frozen` row shows what the schedule does alone: its policy never changes, and reward and entropy pass all the same.\n\n"
        + table(["arm", *LABELS, "lead of post tail", "bare", "lead of all tail", "bare"], rows)
    )  # fmt: skip


def _lead_range(runs: Sequence[Outcome], limits: Mapping[str, float], name: str, without: str) -> str | None:
    leads = [lead for _, lead in leads_of(runs, limits, name, without)[0]]
    return f"{np.median(leads):.0f} ({min(leads)} to {max(leads)})" if leads else None


def collapsing(runs: Sequence[Outcome]) -> str:
    """Every collapse: when each series passed its limit, if it did so in time."""
    limits, rows, lost = limits_for(runs, CHOSEN), [], collapses(runs)
    for run in lost:
        found = moments(run, limits)
        rows.append([run.arm, run.seed, run.collapsed, steps_judged(run, "post_tail"), *(found[name] for name in SERIES),
                     lead_of(run, found, "post_ratio"), lead_of(run, found, "post_tail")])  # fmt: skip
    head = ["arm", "seed", "collapse", "post tail judged from", *LABELS, "lead of ratio", "lead of post tail"]
    spoke = [text for run in lost for text in _rules(run)]
    return (
        "### Collapsing runs: who spoke first\n\nStep at which each series passed its threshold (limit, each), before the collapse: an empty cell did "
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


QUESTIONS = {
    "growing: all tail": (growing, "all_tail"),
    "growing: post tail": (growing, "post_tail"),
    "open collapses: post tail": (open_collapses, "post_tail"),
    "open collapses: post ratio": (open_collapses, "post_ratio"),
    "collapses: all tail": (collapses, "all_tail"),
    "collapses: text tail": (collapses, "text_tail"),
}


def sensitivity(runs: Sequence[Outcome]) -> str:
    """The median leads under each rule and set of averages: as chosen, and the range over seeds left out and quiet arms."""
    read = {label: (of(runs), name) for label, (of, name) in QUESTIONS.items()}
    rows = []
    for rule in RULES:
        for without, gone in WITHOUT.items():
            cells = [
                _spread_cell(runs, mine, name, choices(runs, rule, without, name))
                for mine, name in read.values()
            ]
            rows.append([rule, " and ".join(gone) or "none", *cells])
    return (
        "### How much hangs on the choices\n\nMedian lead of a tail over the first average, with thresholds of all quiet runs; in brackets the "
        f"least and the largest median over {len(choices(runs)) // len(rows)} choices of who sets the thresholds (both quiet arms or either; all seeds or one left out) and of the quantile that is read "
        f"(p95, p99, p99.9; of the ratio p95 and p99). Outside the brackets p95. "
        "Positive: the tail is first. Empty: fewer than three runs in which either spoke.\n\n"
        + table(["thresholds", "averages left out", *QUESTIONS], rows)
    )  # fmt: skip


def _spread_cell(
    runs: Sequence[Outcome], read: Sequence[Outcome], name: str, among: Sequence[Choice]
) -> str | None:
    spread = medians(runs, read, name, among)
    if not spread:
        return None
    own = medians(runs, read, name, among[:1])
    return (
        f"{own[0]:g} ({min(spread):g} to {max(spread):g})"
        if own
        else f"- ({min(spread):g} to {max(spread):g})"
    )


def false_alarms(runs: Sequence[Outcome]) -> str:
    """How often each rule is wrong on healthy runs that did not set it."""
    quiet, wide = null_runs(runs), null_runs(runs, ANY_RATE)
    others = [run for run in wide if run not in quiet]
    rows = [[rule, len(others), *_false(others, of(quiet))] for rule, of in RULES.items()]
    for seed in sorted({run.seed for run in quiet}):
        limits = limits_for(runs, Choice(left_out=(seed,)))
        rows.append([f"limit, each, without seed {seed}: its own quiet runs", 2, *_false([run for run in quiet if run.seed == seed], limits)])  # fmt: skip
    head = ["thresholds", "runs read", "post tail", "text tail", "all tail", *(name.replace("_", " ") for name in AVERAGES), "any average"]  # fmt: skip
    return (
        "### False alarms\n\nHealthy runs with constrained outputs that pass a threshold they did not set: those at higher rates, and the quiet "
        "runs of a seed that was left out.\n\n" + table(head, rows)
    )  # fmt: skip


def _false(runs: Sequence[Outcome], limits: Mapping[str, float]) -> list[str | None]:
    groups = (("post_tail",), ("text_tail",), ("all_tail",), *((name,) for name in AVERAGES), AVERAGES)
    if not runs:
        return [None] * len(groups)
    found = [moments(run, limits) for run in runs]
    passed = [sum(any(each[name] is not None for name in group) for each in found) for group in groups]
    return [f"{count}/{len(runs)}" for count in passed]
