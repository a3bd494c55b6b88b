"""The tables of docs/evidence.md that have a row for every arm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reproduce.pilot.arms import PILOT
from reproduce.pilot.reading import Outcome

__all__ = ["OVERVIEW", "by_arm", "controls", "late_tails", "outcomes", "overview", "range_of", "steps_of", "table"]  # fmt: skip

OVERVIEW = {
    "reward": ("reward", "reward_drop"),
    "aggregate KL": ("kl", "kl_break"),
    "grad norm": ("grad_norm", "grad_norm_growth"),
    "text tail": ("text_p95", "text_tail"),
    "post-tool tail": ("post_p95", "post_tail"),
}
"""Column -> the late value, and the detector that says when the run left its own noise."""


def by_arm(runs: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The runs of every arm that was recorded, in the order of `PILOT`."""
    return {arm: mine for arm in PILOT if (mine := [run for run in runs if run.arm == arm])}


def overview(runs: Sequence[Outcome]) -> str:
    """Every arm against every quantity: how large it is late in the run, and when it first left its own noise."""
    rows = []
    for arm, mine in by_arm(runs).items():
        cells = [
            f"{late}<br>{_left(mine, rule)}" if (late := range_of(mine, name)) else "no tokens"
            for name, rule in OVERVIEW.values()
        ]
        shares = [range_of(mine, name) for name in ("variance_share", "token_share")]
        rows.append([arm, len(mine), *cells, "<br>".join(shares) if all(shares) else "no tokens"])
    return (
        "### Every arm: size of each quantity, and the first moment at which it left its own noise\n\n"
        "First line of a cell: mean over seeds of the last quarter of the run, in brackets the least and the largest seed. Tails: p95 "
        "of |drift|, nats. Second line: median step at which a detector first said that the series had left its own noise, and in "
        "how many seeds it did; from a collapse on nothing counts. Gradient norm and tails: sustained growth; reward "
        "and KL: a break of their trend; each allowed one false alarm in 1,000 values. Those of reward, KL and gradient norm are silent "
        "before all collapses too, so *never* there does not mean calm. Last column: share of the post-tool tokens in "
        "the variance of the per-trajectory gradient (all weights), below it their share of the tokens; second half "
        "of the run, measured every 20 steps, too seldom for a first moment.\n\n"
        + table(["arm", "seeds", *OVERVIEW, "gradient-variance share against token share"], rows)
    )


def outcomes(runs: Sequence[Outcome]) -> str:
    """What each arm is, and how many of its runs collapsed."""
    rows = []
    for arm, mine in by_arm(runs).items():
        passed = steps_of([run.collapsed for run in mine])
        counted = all(run.learning for run in mine)
        collapsed = passed if counted else f"not counted; the rule fires: {passed}"
        rows.append([arm, mine[0].family, PILOT[arm].what, len(mine), collapsed])
    return (
        "### Runs\n\nCollapsed: median step, and in how many runs. The collapse rule looks at reward alone: on a frozen policy it fires "
        "because the share of harder tasks rises, so frozen runs count neither as collapses nor as healthy runs.\n\n"
        + table(["arm", "family", "what differs", "seeds", "collapsed at"], rows)
    )


def late_tails(runs: Sequence[Outcome]) -> str:
    """The far tail and the reference's support."""
    names = ["text_p99", "post_p99", "text_unsupported", "post_unsupported", "post_tokens"]
    rows = [[arm, len(mine), *(range_of(mine, name) for name in names)] for arm, mine in by_arm(runs).items()]
    return (
        "### The far tail and the reference's support\n\nMeans over the last quarter of each run; in brackets the least and the "
        "largest seed. p99 of |drift| in nats; unsupported: share of tokens with log pi_ref below -5; post tokens: how many that is.\n\n"
        + table(["arm", "seeds", *(n.replace("_", " ") for n in names)], rows)
    )


def controls(runs: Sequence[Outcome]) -> str:
    """Post-tool tokens against matched text tokens, and the policy's change on fixed transcripts."""
    names = ["matched_turn_covered", "matched_turn_text_p95", "matched_turn_post_p95", "matched_position_covered",
             "matched_position_text_p95", "matched_position_post_p95", "text_probe_p95", "post_probe_p95"]  # fmt: skip
    rows = [[arm, len(mine), *(range_of(mine, name) for name in names)] for arm, mine in by_arm(runs).items()]
    return (
        "### Controls\n\nMatched: second half of each run, p95 of |drift| of post-tool tokens and of text tokens weighted to the same "
        "place (in the turn, or in the completion) and entropy, with the share of post-tool tokens that have such text tokens. Probe: "
        "last quarter, p95 of the policy's change on fixed transcripts. Mean, least and largest seed.\n\n"
        + table(["arm", "seeds", *(n.replace("_", " ") for n in names)], rows)
    )


def range_of(runs: Sequence[Outcome], name: str) -> str:
    """Mean, least and largest over the runs that have the value, with their number where some have not; '' for none."""
    values = [run.late[name] for run in runs if math.isfinite(run.late[name])]
    if not values:
        return ""
    few = "" if len(values) == len(runs) else f" of {len(values)}"
    if len(values) == 1:
        return f"{_short(values[0], 3)}{few}"
    return (
        f"{_short(sum(values) / len(values), 3)} ({_short(min(values), 2)} to {_short(max(values), 2)}){few}"
    )


def _short(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def _left(runs: Sequence[Outcome], rule: str) -> str:
    steps = [run.first[rule] for run in runs]
    cut = [
        None if step is not None and run.learning and run.collapsed is not None and step >= run.collapsed else step
        for run, step in zip(runs, steps, strict=True)
    ]  # fmt: skip
    return steps_of(cut)


def steps_of(steps: Sequence[int | None]) -> str:
    """Median of the steps that are known, and how many are."""
    known = [step for step in steps if step is not None]
    return f"{np.median(known):.0f} ({len(known)}/{len(steps)})" if known else f"never (0/{len(steps)})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; None is an empty cell."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
