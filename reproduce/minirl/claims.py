"""What the paper says, what we see, and a verdict that is computed (2512.01374, Figures 1 and 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reproduce.minirl.reading import Interval, Outcome, collapses, paired, spread
from reproduce.minirl.verdicts import Verdict, both, by_collapse, by_sign, no_gain, similar, stable

__all__ = ["Claim", "off_policy", "on_policy", "score", "shown"]

SIGNED = "+.3f"
LEAST_LOG = 0.1  # of a ratio: a smaller one counts as none


class Claim(NamedTuple):
    """A row of the page's table."""

    paper: str
    seen: str
    verdict: Verdict


def shown(found: Interval, form: str = ".3f") -> str:
    """Mean and interval.

    >>> shown(Interval(-0.031, -0.072, 0.01, 3), "+.3f"), shown(Interval(0.00123, None, None, 2), ".2g")
    ('-0.031 (-0.072 to +0.010)', '0.0012 (n=2, no interval)')
    """
    if math.isnan(found.mean):
        return "-"
    if found.low is None or found.high is None:
        return f"{found.mean:{form}} (n={found.n}, no interval)"
    return f"{found.mean:{form}} ({found.low:{form}} to {found.high:{form}})"


def score(run: Outcome) -> float:
    """Late mean reward."""
    return run.score


def log_late(name: str) -> Callable[[Outcome], float]:
    """Log of a late mean, so that a difference is a ratio."""

    def of(run: Outcome) -> float:
        value = run.late(name)
        return math.log(value) if value > 0 else math.nan

    return of


def ratio(runs: Sequence[Outcome], arm: str, base: str, name: str) -> tuple[Interval, str]:
    """Difference of logs, and the ratio in words."""
    found = paired(runs, arm, base, log_late(name))
    if found.low is None or found.high is None:
        return found, "undecided (n < 3)"
    return found, f"x {math.exp(found.mean):.2f} ({math.exp(found.low):.2f} to {math.exp(found.high):.2f})"


def lost(runs: Sequence[Outcome], arm: str) -> str:
    """`collapsed 2 of 3 (steps 80, 120)`."""
    number, every = collapses(runs, arm)
    steps = [str(run.collapsed) for run in runs if run.arm == arm and run.collapsed is not None]
    return f"{number} of {every} collapse" + (f" (steps {', '.join(steps)})" if steps else "")


def on_policy(runs: Sequence[Outcome]) -> list[Claim]:
    """Figure 1 of the paper."""
    others = ("no_is", "length_norm", "r3")
    differences = {arm: paired(runs, arm, "minirl", score) for arm in others}
    ahead = [by_sign(found, -1) for found in differences.values()]
    best: Verdict = "same" if set(ahead) == {"same"} else "opposite" if "opposite" in ahead else "undecided"
    base = collapses(runs, "minirl")
    _, entropy = ratio(runs, "no_is", "minirl", "entropy")
    kl, kl_text = ratio(runs, "r3", "minirl", "mismatch_kl")
    no_is = collapses(runs, "no_is")
    return [
        Claim("MiniRL is the best and most stable arm",
              f"score {shown(spread([score(run) for run in runs if run.arm == 'minirl']))}; {lost(runs, 'minirl')}; the others less MiniRL: "
              + "; ".join(f"{arm} {shown(found, SIGNED)}" for arm, found in differences.items()), best),
        Claim("without the IS weight: fast collapse with a sharp drop of entropy",
              f"{lost(runs, 'no_is')}; score against MiniRL {shown(differences['no_is'], SIGNED)}; late entropy {entropy}",
              by_collapse(no_is, base)),
        Claim("with length normalisation: stable",
              lost(runs, "length_norm"), stable(collapses(runs, "length_norm"))),
        Claim("with length normalisation: lower score",
              f"score against MiniRL {shown(differences['length_norm'], SIGNED)}", by_sign(differences["length_norm"], -1)),
        Claim("with R3: lower mismatch KL", f"late KL {kl_text}", by_sign(kl, -1, margin=LEAST_LOG)),
        Claim("with R3: no gain", f"score against MiniRL {shown(differences['r3'], SIGNED)}; {lost(runs, 'r3')}", no_gain(differences["r3"])),
    ]  # fmt: skip


def off_policy(runs: Sequence[Outcome], on: Sequence[Outcome] = ()) -> list[Claim]:
    """Figure 3 of the paper, and an arm it does not show."""
    recipe = collapses(runs, "clip_r3")
    against = {
        arm: paired(runs, arm, "clip_r3", score) for arm in ("no_clip", "r2_no_clip", "clip_r2", "clip")
    }
    r3 = paired(runs, "clip_r3", "clip_r2", score)
    rows = [
        Claim(f"{words}: early collapse", f"{lost(runs, arm)}; score against clip and R3 {shown(against[arm], SIGNED)}",
              by_collapse(collapses(runs, arm), recipe))
        for arm, words in (("no_clip", "no clip, no replay"), ("r2_no_clip", "no clip, R2"))
    ]  # fmt: skip
    peaks = (
        spread([run.best for run in runs if run.arm == "clip_r3"]),
        spread([run.best for run in on if run.arm == "minirl"]),
    )
    gap = _gap_of_peaks(runs, on)
    stale, stale_text = ratio(runs, "clip_r2", "clip", "staleness_p99")
    kl, kl_text = ratio(runs, "clip_r3", "clip", "mismatch_kl")
    return [
        Claim("clip and R3 is stable", lost(runs, "clip_r3"), stable(recipe)),
        *rows,
        Claim("clip and R2: unstable in the end", lost(runs, "clip_r2"), by_collapse(collapses(runs, "clip_r2"), recipe)),
        Claim("clip: R3 scores above R2", f"R3 less R2 {shown(r3, SIGNED)}", by_sign(r3, 1)),
        Claim("clip, no replay: not among the arms of the paper's text",
              f"{lost(runs, 'clip')}; score against clip and R3 {shown(against['clip'], SIGNED)}", "no claim"),
        Claim("R2 shrinks the staleness, R3 the mismatch too",
              f"against clip alone: late p99 of the staleness with R2 {stale_text}, KL(mu, pi_old) with R3 {kl_text}",
              both(by_sign(stale, -1, margin=LEAST_LOG), by_sign(kl, -1, margin=LEAST_LOG))),
        Claim("stabilised runs reach a similar peak on and off policy",
              f"best held-out score: clip and R3, N = 4, {shown(peaks[0])}; MiniRL, N = 1, {shown(peaks[1])}; difference {shown(gap, SIGNED)}",
              similar(gap)),
    ]  # fmt: skip


def _gap_of_peaks(runs: Sequence[Outcome], on: Sequence[Outcome]) -> Interval:
    """Best score of the recipe off policy less MiniRL's on policy, by seed: both begin at the same start."""
    base = {run.seed: run.best for run in on if run.arm == "minirl"}
    return spread([run.best - base[run.seed] for run in runs if run.arm == "clip_r3" and run.seed in base])
