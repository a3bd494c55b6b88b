"""The table at the top of docs/reference/pilot.md: each claim, what the bank shows, how much hangs on a choice, and what that allows to say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reproduce.pilot.claims_size import NONE, WORDS, localised, rare, suppressed
from reproduce.pilot.leads import QUIET, at_quantile, cut_off, moments, steps_judged
from reproduce.pilot.reading import QUANTILES, Outcome
from reproduce.pilot.summary import GROWING, collapses, growing, interval, open_collapses
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


def claims(runs: Sequence[Outcome]) -> str:
    """Claim, evidence, robustness, verdict. A verdict needs one sign under every choice that is named beside it."""
    rows = [
        localised(runs),
        suppressed(runs, "Constrained outputs keep the post-tool tail small (rate 2e-4)", GROWING, QUIET),
        suppressed(runs, "The same at a rate of 1e-3", ("open_fast",), ("constrained_fast",)),
        _carried(runs),
        _against_constrained(runs),
        _variance_grows(runs),
        _lead(runs, "While runs grow, the tail of all tokens moves before any average", growing(runs), "all_tail"),
        _lead(runs, "While runs grow, the post-tool tail moves before any average", growing(runs), "post_tail"),
        _lead(runs, "Before a collapse (open outputs) the post-tool tail moves first", open_collapses(runs), "post_tail"),
        _warns(runs),
        _lead(runs, "Before a collapse (all arms) the tail of all tokens moves first", collapses(runs), "all_tail"),
        rare(runs),
        _omen(runs),
    ]  # fmt: skip
    return table(["claim", "what we see", "how robust", "verdict"], rows)


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
        verdict(excess + less + pooled),
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
    own = limits_for(runs, Choice())
    leads, spoke = leads_of(read, own, name)
    if len(leads) < LEAST:
        return [claim, NONE, "", verdict([])]
    low, high = interval(runs, read, name)
    every = choices(runs, name=name)
    spread = medians(runs, read, name, every)
    ends = [each for each in (low, high) if each is not None]
    judged = [run for run in read if steps_judged(run, name) is not None]
    fewer = [
        median
        for seed in sorted({s for s, _ in leads})
        for median in medians(runs, [run for run in read if run.seed != seed], name, [Choice()])
    ]
    sure = medians(runs, judged, name, [Choice()])
    cut = sum(cut_off(run, name, moments(run, own)[name]) for run in judged)
    return [
        claim,
        f"median lead {_one(medians(runs, read, name, [Choice()]))} steps ({_ends(low, high)}; {len(leads)} runs of {len({s for s, _ in leads})} seeds; the tail spoke in "
        f"{spoke} and was first in {sum(lead > 0 for _, lead in leads)}; it could be judged in {len(judged)} of {len(read)}, and {cut} of those that spoke did so at the first step at which they could)",
        f"thresholds without a seed: {', '.join(_one(medians(runs, read, name, [Choice(left_out=left)])) for left in nulls(runs)[1:])}; "
        f"a judged seed left out: {_span(fewer)}; only where it could be judged: {_one(sure)}; "
        + "; ".join(f"read at {WORDS[q]}: {_one(medians(runs, read, name, [Choice(quantile=q)]))}" for q in QUANTILES[1:] if at_quantile(name, q)) + "; "
        + ", ".join(f"without {'reward and entropy' if each == 'both' else each} {_one(medians(runs, read, name, [Choice(without=each)]))}" for each in list(WITHOUT)[1:])
        + f"; all {len(every)} choices: {_span(spread)}",
        verdict(spread + ends + fewer + sure),
    ]  # fmt: skip


def _warns(runs: Sequence[Outcome]) -> Row:
    """Does the ratio pass at all before a collapse? Where it is silent there is no lead to speak of."""
    claim = "Before a collapse (open outputs) the post-tool to text ratio, the alarm's own series, passes"
    name, read = "post_ratio", open_collapses(runs)
    judged = [run for run in read if steps_judged(run, name) is not None]
    if len(judged) < LEAST:
        return [claim, NONE, "", verdict([])]
    every = [choice for choice in choices(runs, name=name) if choice.without == "none"]
    tails = [(choice, at_quantile(name, choice.quantile)) for choice in every]
    counts = [sum(moments(run, limits_for(runs, choice))[tail] is not None for run in judged) for choice, tail in tails if tail]  # fmt: skip
    own = sum(moments(run, limits_for(runs, Choice()))[name] is not None for run in judged)
    return [
        claim,
        f"it passed in {own} of the {len(judged)} in which it could be judged; {len(read) - len(judged)} more collapsed before it had a baseline",
        f"over {len(every)} choices: in {min(counts)} to {max(counts)} of {len(judged)} (*holds* would be more than half under each, *does not hold* fewer than half)",
        verdict([count - len(judged) / 2 for count in counts]),
    ]


def _omen(runs: Sequence[Outcome]) -> Row:
    claim = "A tail that grows at 2e-4 ends in a collapse"
    mine = [run for arm, found in by_arm(runs).items() if arm in GROWING for run in found]
    if not mine:
        return [claim, NONE, "", verdict([])]
    fell = sum(run.collapsed is not None for run in mine)
    steps = max(run.steps for run in mine)
    word = "undecided" if fell else f"does not hold within {steps} steps"
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


def _one(values: Sequence[float]) -> str:
    return f"{values[0]:g}" if values else "-"


def _span(values: Sequence[float]) -> str:
    return f"{min(values):g} to {max(values):g}" if values else "-"
