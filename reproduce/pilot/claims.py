"""The table at the top of docs/evidence.md: each claim, what the bank shows, how much hangs on a choice, and what that allows to say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reproduce.pilot.leads import QUIET, steps_judged
from reproduce.pilot.reading import Outcome
from reproduce.pilot.summary import GROWING, collapses, growing, interval, open_collapses, paired_ratio
from reproduce.pilot.tables import by_arm, table
from reproduce.pilot.variance import (
    growth_of_variance,
    late_batches,
    share_less_one_batch,
    share_of,
    token_share,
)
from reproduce.pilot.variants import (
    LEAST,
    WITHOUT,
    Choice,
    choices,
    leads_of,
    limits_for,
    medians,
    nulls,
    verdict,
)

__all__ = ["claims"]

Row = list[str]
NONE = "no runs to tell"


def claims(runs: Sequence[Outcome]) -> str:
    """Claim, evidence, robustness, verdict. A verdict needs one sign under every choice that is named beside it."""
    rows = [
        _suppressed(runs, "Constrained outputs keep the post-tool tail small (rate 2e-4)", GROWING, QUIET),
        _suppressed(runs, "The same at a rate of 1e-3", ("open_fast",), ("constrained_fast",)),
        _carried(runs),
        _against_constrained(runs),
        _variance_grows(runs),
        _lead(runs, "While runs grow, the tail of all tokens moves before any average", growing(runs), "all_tail"),
        _lead(runs, "While runs grow, the post-tool tail moves before any average", growing(runs), "post_tail"),
        _lead(runs, "Before a collapse (open outputs) the post-tool tail moves first", open_collapses(runs), "post_tail"),
        _lead(runs, "Before a collapse (open outputs) the post-tool to text ratio, the alarm's own series, moves first", open_collapses(runs), "post_ratio"),
        _lead(runs, "Before a collapse (all arms) the tail of all tokens moves first", collapses(runs), "all_tail"),
        _omen(runs),
    ]  # fmt: skip
    return table(["claim", "what we see", "how robust", "verdict"], rows)


def _suppressed(runs: Sequence[Outcome], claim: str, open_arms: Sequence[str], shut: Sequence[str]) -> Row:
    """Late p99 of |drift| after a tool, one arm over another at the same seed."""
    ratio, low, high = paired_ratio(runs, open_arms[0], shut[0])
    if ratio is None or low is None or high is None:
        return [claim, NONE, "", verdict([])]
    seeds = sorted({run.seed for run in runs if run.arm == open_arms[0]})
    less = [
        paired_ratio([run for run in runs if run.seed != seed], open_arms[0], shut[0])[0] for seed in seeds
    ]
    others = [each for a in open_arms for b in shut if (each := paired_ratio(runs, a, b)[0]) is not None]
    more = (
        f"; {len(open_arms)} open arms over {len(shut)} constrained: x{min(others):.3g} to x{max(others):.3g}"
        if len(others) > 1
        else ""
    )
    kept = [math.log(each) for each in (low, high, *(one for one in less if one), *others)]
    return [
        claim,
        f"late p99 after a tool, `{open_arms[0]}` over `{shut[0]}`: x{ratio:.3g} (95 % {low:.2g} to {high:.2g}, {len(seeds)} seeds)",
        f"a seed left out: {', '.join(f'x{each:.3g}' for each in less if each)}{more}",
        verdict(kept),
    ]  # fmt: skip


def _carried(runs: Sequence[Outcome]) -> Row:
    """Pooled share of the variance against the share of the tokens, in growing runs."""
    claim = "With open outputs, post-tool tokens carry more of the gradient's variance than of the tokens (rate 2e-4)"
    told = [(run, rows) for run in growing(runs) if math.isfinite(share_of(rows := late_batches(run)))]
    if not told:
        return [claim, NONE, "", verdict([])]
    own = [(share_of(rows), token_share(rows)) for run, rows in told if run.arm == "open"]
    excess = [share_of(rows) - token_share(rows) for _, rows in told]
    less = [share - token_share(rows) for _, rows in told for share in share_less_one_batch(rows)]
    arms = [
        row for arm in GROWING if (row := [each for run, rows in told if run.arm == arm for each in rows])
    ]
    pooled = [share - token_share(rows) for rows in arms for share in share_less_one_batch(rows)]
    others = [
        share_of(rows) > token_share(rows)
        for run in runs
        if run.arm in (*QUIET, "frozen") and (rows := late_batches(run))
    ]
    above = sum(each > 0 for each in excess)
    return [
        claim,
        f"`open`: {_list([a for a, _ in own])} of the variance from {_list([b for _, b in own])} of the tokens (a figure a seed)",
        f"all open arms: in {above} of {len(excess)} runs; a batch left out of a run: {sum(each > 0 for each in less)} of {len(less)}, of an "
        f"arm: {sum(each > 0 for each in pooled)} of {len(pooled)}; but so do they in {sum(others)} of {len(others)} constrained or frozen runs",
        verdict(excess + pooled),
    ]


def _against_constrained(runs: Sequence[Outcome]) -> Row:
    """Is the share higher than with constrained outputs at the same seed?"""
    claim = "That share is larger than with constrained outputs"
    shares = {
        (run.arm, run.seed): share_of(late_batches(run))
        for run in runs
        if run.arm in (*GROWING, *QUIET, "frozen")
    }
    gaps = [
        shares[a] - shares[b, a[1]] for a in shares if a[0] in GROWING for b in QUIET if math.isfinite(shares.get((b, a[1]), math.nan) + shares[a])
    ]  # fmt: skip
    seen = [
        f"`{arm}` {_list(own)}" for arm in ("open", *QUIET, "frozen")
        if (own := [share for (name, _), share in shares.items() if name == arm and math.isfinite(share)])
    ]  # fmt: skip
    if not gaps:
        return [claim, NONE, "", verdict([])]
    above = sum(gap > 0 for gap in gaps)
    return [
        claim,
        "; ".join(seen),
        f"larger at the same seed in {above} of {len(gaps)} pairs of an open and a constrained run",
        verdict(gaps),
    ]


def _variance_grows(runs: Sequence[Outcome]) -> Row:
    claim = "The variance after a tool grows over the run (open outputs)"
    found = {
        (run.arm, run.seed): change
        for run in growing(runs)
        if math.isfinite(change := growth_of_variance(run))
    }
    if not found:
        return [claim, NONE, "", verdict([])]
    own = [change for (arm, _), change in found.items() if arm == "open"]
    up = sum(change > 1 for change in found.values())
    logs = [math.log(change) if change > 0 else -math.inf for change in found.values()]
    return [
        claim,
        f"`open`, second half over first: {', '.join(f'x{change:.2g}' for change in own)}" if own else NONE,
        f"all open arms: it rose in {up} of {len(found)} runs",
        verdict(logs),
    ]


def _lead(runs: Sequence[Outcome], claim: str, read: Sequence[Outcome], name: str) -> Row:
    """Median lead over the first average as chosen, with each seed left out, without some averages, and over every choice."""

    def median(choice: Choice) -> str:
        leads, _ = leads_of(read, limits_for(runs, choice), name, choice.without)
        return f"{np.median([lead for _, lead in leads]):g}" if len(leads) >= LEAST else "-"

    leads, spoke = leads_of(read, limits_for(runs, Choice()), name)
    if len(leads) < LEAST:
        return [claim, NONE, "", verdict([])]
    low, high = interval(runs, read, name)
    every = choices(runs)
    spread = medians(runs, read, name, every)
    ends = [each for each in (low, high) if each is not None]
    first = sum(lead > 0 for _, lead in leads)
    judged = sum(steps_judged(run, name) is not None for run in read)
    return [
        claim,
        f"median lead {median(Choice())} steps ({_ends(low, high)}; {len(leads)} runs of {len({s for s, _ in leads})} seeds; the tail spoke in "
        f"{spoke} and was first in {first}; it could be judged in {judged} of {len(read)})",
        f"a seed left out: {', '.join(median(Choice(left_out=left)) for left in nulls(runs)[1:])}; "
        + ", ".join(f"without {'reward and entropy' if each == 'both' else each} {median(Choice(without=each))}" for each in list(WITHOUT)[1:])
        + f"; all {len(every)} choices: {min(spread):g} to {max(spread):g}",
        verdict(spread + ends),
    ]  # fmt: skip


def _omen(runs: Sequence[Outcome]) -> Row:
    claim = "A tail that grows at 2e-4 ends in a collapse"
    mine = [run for arm, found in by_arm(runs).items() if arm in GROWING for run in found]
    if not mine:
        return [claim, NONE, "", verdict([])]
    fell = sum(run.collapsed is not None for run in mine)
    steps = max(run.steps for run in mine)
    word = "cannot be told" if fell else f"does not hold within {steps} steps"
    return [
        claim,
        f"{fell} of {len(mine)} runs collapsed within {steps} steps",
        "longer runs were not made",
        word,
    ]


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _ends(low: float | None, high: float | None) -> str:
    return "no interval" if low is None or high is None else f"95 % {low:g} to {high:g}"
