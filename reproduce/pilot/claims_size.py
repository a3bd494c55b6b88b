"""Rows of the table of claims on how large a tail is, and where: what suppresses it, where it localises, what a share of tool tasks does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reproduce.pilot.reading import QUANTILES, Outcome
from reproduce.pilot.summary import GROWING, growing, paired_ratio
from reproduce.pilot.variants import LEAST, Choice, choices, leads_of, limits_for, medians, verdict

__all__ = ["NONE", "WORDS", "localised", "rare", "suppressed"]

Row = list[str]
NONE = "no runs to tell"
WORDS = {"p95": "p95", "p99": "p99", "p999": "p99.9"}

PLACES = {
    "unmatched": {WORDS[q]: (f"post_{q}", f"text_{q}") for q in QUANTILES},
    "matched by place in the turn and entropy": {q: (f"matched_turn_post_{q}", f"matched_turn_text_{q}") for q in QUANTILES[:2]},
    "matched by position in the completion and entropy": {q: (f"matched_position_post_{q}", f"matched_position_text_{q}") for q in QUANTILES[:2]},
}  # fmt: skip
"""How text tokens are chosen -> quantile -> the two late values that are compared."""
COVERED = {
    "matched by place in the turn and entropy": "matched_turn_covered",
    "matched by position in the completion and entropy": "matched_position_covered",
}
FIXED = {"open_alpha05": "0.05", "open_alpha20": "0.2", "open_alpha50": "0.5"}


def suppressed(runs: Sequence[Outcome], claim: str, open_arms: Sequence[str], shut: Sequence[str]) -> Row:
    """Late |drift| after a tool, one arm over another at the same seed, at every quantile that is read."""
    seen, robust, logs = [], [], []
    seeds = sorted({run.seed for run in runs if run.arm == open_arms[0]})
    for q in QUANTILES:
        key, word = f"post_{q}", WORDS[q]
        ratio, low, high = paired_ratio(runs, open_arms[0], shut[0], key)
        if ratio is None or low is None or high is None:
            return [claim, NONE, "", verdict([])]
        less = [each for seed in seeds if (each := paired_ratio([r for r in runs if r.seed != seed], open_arms[0], shut[0], key)[0])]  # fmt: skip
        others = [each for a in open_arms for b in shut if (each := paired_ratio(runs, a, b, key)[0])]
        seen.append(f"{word} x{ratio:.3g} (95 % {low:.3g} to {high:.3g})")
        robust.append(f"{word} {', '.join(f'x{each:.3g}' for each in less)}" + (f", arms {_ends(others)}" if len(others) > 1 else ""))  # fmt: skip
        logs += [math.log(each) for each in (low, high, *less, *others)]
    arms = f", and {len(open_arms)} open arms over {len(shut)} constrained" if len(open_arms) > 1 else ""
    return [
        claim,
        f"late tail after a tool, `{open_arms[0]}` over `{shut[0]}` ({len(seeds)} seeds): {'; '.join(seen)}",
        f"a seed left out{arms}: {'; '.join(robust)}",
        verdict(logs),
    ]


def localised(runs: Sequence[Outcome]) -> Row:
    """Post-tool tokens over text tokens, as they come and matched, in every open arm at the base rate."""
    claim = "With open outputs the tail localises in tokens written after a tool result (rate 2e-4)"
    by = {arm: mine for arm in GROWING if (mine := [run for run in growing(runs) if run.arm == arm])}
    seen, robust, logs = [], [], []
    for place, pairs in PLACES.items():
        own, ends, under, count = [], [], 0, 0
        for q, keys in pairs.items():
            found = {arm: _ratios(mine, *keys) for arm, mine in by.items()}
            single = [each for mine in found.values() for each in mine]
            if not single:
                continue
            means = {arm: float(np.mean(mine)) for arm, mine in found.items() if mine}
            less = [float(np.mean([*mine[:at], *mine[at + 1 :]])) for mine in found.values() if len(mine) > 1 for at in range(len(mine))]  # fmt: skip
            logs += [*means.values(), *less]
            own += [f"{q} x{math.exp(means['open']):.3g}"] if "open" in means else []
            ends.append(f"{q} {_ends([math.exp(each) for each in means.values()])}")
            under, count = under + sum(each <= 0 for each in single), count + len(single)
        if not ends:
            continue
        seen.append(f"{place} {', '.join(own) or '-'}{_covered(by.get('open', []), place)}")
        robust.append(f"{place} {', '.join(ends)}, not above text in {under} of {count} readings of a run")
    if not logs:
        return [claim, NONE, "", verdict([])]
    return [
        claim,
        f"post-tool over text tail in `open`: {'; '.join(seen)}",
        f"least to largest of {len(by)} open arms: {'; '.join(robust)}",
        verdict(logs),
    ]


def rare(runs: Sequence[Outcome]) -> Row:
    """Does the tail of all tokens lead longer where tool tasks are rarer? Against KL and the gradient norm alone."""
    claim = "The rarer tool tasks are, the longer the tail of all tokens leads KL and the gradient norm (alpha fixed)"
    arms = {arm: [run for run in growing(runs) if run.arm == arm] for arm in FIXED}
    own = {arm: medians(runs, mine, "all_tail", [Choice(without="both")]) for arm, mine in arms.items()}
    if any(len(each) < 1 for each in own.values()):
        return [claim, NONE, "", verdict([])]
    gaps: dict[tuple[str, str], list[float]] = {}
    every = choices(runs, without="both")
    for choice in every:
        leads = {arm: medians(runs, mine, "all_tail", [choice]) for arm, mine in arms.items()}
        for rarer, other in (("open_alpha05", "open_alpha20"), ("open_alpha05", "open_alpha50"), ("open_alpha20", "open_alpha50")):  # fmt: skip
            if leads[rarer] and leads[other]:
                gaps.setdefault((rarer, other), []).append(leads[rarer][0] - leads[other][0])
    spoke = {arm: leads_of(mine, limits_for(runs, Choice()), "all_tail", "both")[1] for arm, mine in arms.items()}  # fmt: skip
    full = {arm: medians(runs, mine, "all_tail", [Choice()]) for arm, mine in arms.items()}
    return [
        claim,
        "median lead at " + ", ".join(f"{FIXED[arm]}: {each[0]:g} (the tail passed in {spoke[arm]} of {len(arms[arm])})" for arm, each in own.items())
        + " steps; with reward and entropy counted " + ", ".join(f"{each[0]:g}" if each else "-" for each in full.values()),
        f"difference over {len(every)} choices (those with {LEAST} runs to read): "
        + "; ".join(f"{FIXED[a]} less {FIXED[b]}: {min(found):g} to {max(found):g}" for (a, b), found in gaps.items()),
        verdict([each for found in gaps.values() for each in found]),
    ]  # fmt: skip


def _ratios(runs: Sequence[Outcome], above: str, below: str) -> list[float]:
    """Logarithms of one late value over another, a run each; of those that have both."""
    pairs = [(run.late.get(above, math.nan), run.late.get(below, math.nan)) for run in runs]
    return [math.log(a / b) for a, b in pairs if a > 0 and b > 0]


def _covered(runs: Sequence[Outcome], place: str) -> str:
    found = [run.late[COVERED[place]] for run in runs] if place in COVERED else []
    return f" (covers {np.mean(found):.0%} of the tokens)" if found else ""


def _ends(values: Sequence[float]) -> str:
    return f"x{min(values):.3g} to x{max(values):.3g}"
