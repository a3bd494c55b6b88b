"""The tables of docs/reference/pilot.md that have a row for every arm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from reproduce.pilot.arms import PILOT
from reproduce.pilot.leads import limits_of, moments, null_runs, passes, rises
from reproduce.pilot.reading import Outcome
from reproduce.pilot.variance import (
    growth_of_variance,
    late_batches,
    pooled,
    share_less_one_batch,
    share_of,
    token_share,
)

__all__ = ["OVERVIEW", "by_arm", "controls", "late_tails", "outcomes", "overview", "power", "range_of", "spread", "steps_of", "table", "variance"]  # fmt: skip

OVERVIEW = {
    "reward": ("reward", "reward"),
    "aggregate KL": ("kl", "kl"),
    "grad norm": ("grad_norm", "grad_norm"),
    "entropy": ("entropy", "entropy"),
    "tail of all tokens": ("all_p95", "all_tail"),
    "text tail": ("text_p95", "text_tail"),
    "post-tool tail": ("post_p95", "post_tail"),
}
"""Column -> the late value, and the series whose threshold says when it left the quiet runs' noise."""

AWAKE = 0.5  # of the collapsing runs that can be judged must pass a threshold at all, or it says nothing when it is silent


def _short(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def _plain(value: float, digits: int) -> str:
    """Without an exponent: a share or a variance of a dead policy is 0.00."""
    return _short(value, digits) if abs(value) >= 10 else f"{value:.2f}"


def by_arm(runs: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The runs of every arm that was recorded, in the order of `PILOT`."""
    return {arm: mine for arm in PILOT if (mine := [run for run in runs if run.arm == arm])}


def rising(arm: str) -> bool:
    """Does the share of tool tasks, the harder ones, rise over the runs of this arm?"""
    alpha = PILOT[arm].lab.alpha
    return alpha.at(0) < alpha.at(PILOT[arm].steps)


def power(runs: Sequence[Outcome], name: str, limit: float) -> tuple[int, int]:
    """Of the collapsing runs that can be judged, how many pass at any step; and how many those are."""
    judged = [run for run in runs if run.learning and run.collapsed is not None and rises(run, name)[0]]
    return sum(passes(run, name, limit) for run in judged), len(judged)


def overview(runs: Sequence[Outcome]) -> str:
    """Every arm against every quantity: how large it is late in the run, and when it first left the quiet runs' noise."""
    limits = limits_of(null_runs(runs))
    strength = {name: power(runs, name, limits[name]) for _, name in OVERVIEW.values()}
    asleep = {name for name, (passed, judged) in strength.items() if judged and passed < AWAKE * judged}
    rows = []
    for arm, mine in by_arm(runs).items():
        found = [moments(run, limits) for run in mine]
        cells = [
            f"{late}<br>{_moment([each[name] for each in found], name in asleep)}" if (late := range_of(mine, key)) else "no tokens"
            for key, name in OVERVIEW.values()
        ]  # fmt: skip
        rows.append([arm, len(mine), *cells, "<br>".join(_shares(mine)) or "no tokens"])
    rows.append(
        [
            "*passes in a collapsing run*",
            "",
            *("{} of {}".format(*strength[name]) for _, name in OVERVIEW.values()),
            "",
        ]
    )
    return (
        "### Every arm: size of each quantity, and the first moment at which it left the quiet runs' noise\n\n"
        "First line of a cell: mean over seeds of the last quarter of the run, in brackets the least and the largest seed. Tails: p95 "
        "of |drift|, nats. Second line: median step at which the series passed its threshold (next table but one; every series has the same "
        "kind, at the same share of false alarms), and in how many seeds it did; from a collapse on nothing counts. The last row says how "
        "many collapsing runs pass at any step, before or after the collapse: where that is less than half the detector is *asleep*, and its "
        "silence says nothing (the norm of the gradient falls when a run dies). The arms constrained and low_precision set the thresholds. Last column: "
        "pooled share of the post-tool tokens in the variance of the gradient, below it their share of the tokens (own table below).\n\n"
        + table(["arm", "seeds", *OVERVIEW, "gradient-variance share against token share"], rows)
    )  # fmt: skip


def _moment(steps: Sequence[int | None], asleep: bool) -> str:
    known = any(step is not None for step in steps)
    return steps_of(steps) if known or not asleep else "asleep"


def _shares(runs: Sequence[Outcome]) -> list[str]:
    rows = [late_batches(run) for run in runs]
    shares = [spread([part(each) for each in rows], _plain) for part in (share_of, token_share)]
    return shares if all(shares) else []


def variance(runs: Sequence[Outcome]) -> str:
    """The gradient's variance by slice, pooled, with the absolute sizes beside the share."""
    rows = []
    for arm, mine in by_arm(runs).items():
        late = [late_batches(run) for run in mine]
        if not any(late):
            continue
        sums = [tuple(part / len(each) for part in pooled(each)) for each in late if each]
        less = [share for each in late for share in share_less_one_batch(each)]
        rows.append([
            arm, len(mine), sum(len(each) for each in late), *_shares(mine), spread(less, _plain), spread([post for post, _ in sums], _plain),
            spread([text for _, text in sums], _plain), spread([growth_of_variance(run) for run in mine], _plain),
        ])  # fmt: skip
    head = ["arm", "seeds", "batches", "variance share", "token share", "variance share, a batch left out", "variance after a tool", "variance of text", "after a tool: second half over first"]  # fmt: skip
    return (
        "### The gradient's variance\n\nOf the per-trajectory gradient (all weights), in batches of 64 completions measured every 20 steps; second "
        "half of the run, so three batches a seed (those with post-tool tokens). Share: post-tool over post-tool and text, summed over a "
        "run's batches; mean over seeds, in brackets the least and the largest. A batch of solved tasks has no "
        "advantages and no variance, so single batches have shares of 0 and of 1. Variances are means a batch; the last column compares them with the first half.\n\n"
        + table(head, rows)
    )  # fmt: skip


def outcomes(runs: Sequence[Outcome]) -> str:
    """What each arm is, and how many of its runs collapsed."""
    rows = []
    for arm, mine in by_arm(runs).items():
        passed = steps_of([run.collapsed for run in mine])
        counted = all(run.learning for run in mine)
        collapsed = passed if counted else f"not counted; the rule fires: {passed}"
        for_good = sum(run.learning and run.collapsed is not None and run.ended_low for run in mine)
        improved = sum(run.healthy and run.improved for run in mine)
        rows.append([arm, mine[0].family, PILOT[arm].what, len(mine), collapsed, for_good, improved])
    better = [run for run in runs if run.healthy and run.improved]
    flat = [run for run in better if run.arm in PILOT and not rising(run.arm)]
    return (
        "### Runs\n\nCollapsed: median step, and in how many runs; for good: the last quarter's mean reward is at most half of the best ten-step mean. "
        "Improved: not collapsed, and the last quarter's mean reward is at least 0.1 above that of the first ten steps. "
        f"Of the {len(better)} that improved, {len(better) - len(flat)} did so although the share of harder tasks rises, and {len(flat)} where that share is fixed. The collapse rule looks at reward alone: on a frozen policy it fires because of those tasks, so frozen runs count neither as collapses nor as healthy runs.\n\n"
        + table(["arm", "family", "what differs", "seeds", "collapsed at", "for good", "improved"], rows)
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
        "last quarter, p95 of the policy's change over the last five steps on fixed transcripts, which are scored every five steps (no change since the start was recorded). Mean, least and largest seed.\n\n"
        + table(["arm", "seeds", *(n.replace("_", " ") for n in names)], rows)
    )


def range_of(runs: Sequence[Outcome], name: str) -> str:
    """Mean, least and largest over the runs that have the value, with their number where some have not; '' for none."""
    return spread([run.late[name] for run in runs])


def spread(found: Sequence[float], text: Callable[[float, int], str] = _short) -> str:
    """Mean, least and largest of those that are numbers, with how many where some are not; '' for none."""
    values = [value for value in found if math.isfinite(value)]
    if not values:
        return ""
    few = "" if len(values) == len(found) else f" of {len(values)}"
    if len(values) == 1:
        return f"{text(values[0], 3)}{few}"
    return f"{text(sum(values) / len(values), 3)} ({text(min(values), 2)} to {text(max(values), 2)}){few}"


def steps_of(steps: Sequence[int | None]) -> str:
    """Median of the steps that are known, and how many are."""
    known = [step for step in steps if step is not None]
    return f"{np.median(known):.0f} ({len(known)}/{len(steps)})" if known else f"never (0/{len(steps)})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; None is an empty cell."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
