"""What the figures `lead_steps_*` are made of, and what passing means for entropy: read before either is quoted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproduce.pilot.leads import cut_off, lead_of, moments, steps_judged
from reproduce.pilot.reading import Outcome
from reproduce.pilot.summary import LEADS, growing, interval
from reproduce.pilot.tables import table
from reproduce.pilot.variants import CHOSEN, LEAST, Choice, limits_for, medians

__all__ = ["entropy_note", "lead_figures"]


def lead_figures(runs: Sequence[Outcome]) -> str:
    """Each figure of leads beside the counts that say whether it is one."""
    own = limits_for(runs, CHOSEN)
    rows = []
    for label, (which, name) in LEADS.items():
        read = which(runs)
        found = {run: moments(run, own) for run in read}
        judged = [run for run in read if steps_judged(run, name) is not None]
        spoke = [run for run in read if found[run][name] is not None]
        cut = sum(cut_off(run, name, found[run][name]) for run in spoke)
        low, high = interval(runs, read, name)
        spoken = [lead for run in spoke if (lead := lead_of(run, found[run], name)) is not None]
        told = "" if spoke else " **no lead: the tail spoke in none**"
        ends = "" if low is None or high is None else f" ({low:g} to {high:g})"
        middle = medians(runs, read, name, [CHOSEN])
        shared = medians(runs, read, name, [Choice(rule="limit, shared")])
        rows.append([
            f"`{label}_*`", name.replace("_", " "), len(read), len(judged), len(spoke), cut,
            f"{middle[0]:g}{ends}{told}" if middle else None,
            f"{np.median(spoken):g} ({len(spoken)} runs)" if len(spoken) >= LEAST else None,
            f"{shared[0]:g}" if shared else None,
        ])  # fmt: skip
    head = ["figure", "tail", "runs", "tail could be judged in", "tail spoke in", "of these at the first step at which it could", "median (low to high)", "only where the tail spoke", "equal budgets: the averages share one tail's"]  # fmt: skip
    return (
        "### What the figures of leads are made of\n\n"
        "A lead is the step of the first average less the tail's. A tail that is silent, or cannot be judged before the collapse, counts as speaking at the collapse (or at "
        "the end of the run): such a value is the first average's step less the collapse's, and the tail has no part in it but its silence. A tail that passes at the first step at which "
        "it could may have moved before: its lead is cut off from the left. The default gives every series 10 % of false alarms, so four averages together have more than one "
        "tail; the last column gives the averages together the budget of one tail.\n\n" + table(head, rows)
    )


def entropy_note(runs: Sequence[Outcome]) -> str:
    """What it is that passes in the entropy: no moment, but a fall slower than in quiet runs."""
    limits, late = limits_for(runs, CHOSEN), []
    read = growing(runs)
    for run in read:
        step = moments(run, limits)["entropy"]
        if step is None:
            continue
        value = next(r.value for r in run.view.series("aggregate/entropy", "all") if r.step == step)
        late.append((run.late["entropy"] / value, cut_off(run, "entropy", step)))
    if not late:
        return ""
    return (
        f"Entropy passes in {len(late)} of the {len(read)} growing runs, in {sum(cut for _, cut in late)} of these at the first step at which it could. It goes on falling "
        f"afterwards: in {sum(ratio < 0.8 for ratio, _ in late)} of the {len(late)} its late mean is below 0.8 of the value at that step, in {sum(ratio < 0.5 for ratio, _ in late)} below half. What passes is a fall "
        "slower than in quiet runs, and its step is not a moment at which anything happens. "
    )
