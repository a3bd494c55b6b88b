"""What the paper says, what we see, and a verdict that is computed: same, not seen, opposite, cannot be told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from reproduce.minirl.reading import Interval, Outcome, collapses, paired, spread

__all__ = ["MARGIN", "Claim", "Verdict", "by_collapse", "by_sign", "off_policy", "on_policy", "shown"]

Verdict = Literal["same", "not seen", "opposite", "cannot be told"]
MARGIN = 0.05  # of score: a smaller difference in the paper's direction counts as none (house choice)


class Claim(NamedTuple):
    """A row of the page's table."""

    paper: str
    seen: str
    verdict: Verdict


def by_sign(found: Interval, sign: int, margin: float = MARGIN) -> Verdict:
    """Does the interval lie on the paper's side of zero, on the other, or exclude a difference of `margin` on the paper's side?

    >>> by_sign(Interval(-0.2, -0.3, -0.1, 3), -1), by_sign(Interval(-0.2, -0.5, 0.1, 3), -1), by_sign(Interval(0, -0.02, 0.02, 3), -1)
    ('same', 'cannot be told', 'not seen')
    """
    if found.low is None or found.high is None:
        return "cannot be told"
    low, high = (found.low, found.high) if sign > 0 else (-found.high, -found.low)
    if low > 0:
        return "same"
    if high < 0:
        return "opposite"
    return "not seen" if high < margin else "cannot be told"


def by_collapse(arm: tuple[int, int], base: tuple[int, int]) -> Verdict:
    """The paper's arm collapses and its base does not. All against none is the same; none at all is not seen.

    >>> by_collapse((3, 3), (0, 3)), by_collapse((0, 3), (0, 3)), by_collapse((1, 3), (0, 3)), by_collapse((0, 3), (3, 3))
    ('same', 'not seen', 'cannot be told', 'opposite')
    """
    (lost, all_), (base_lost, base_all) = arm, base
    if min(all_, base_all) < 3:
        return "cannot be told"
    if lost == all_ and base_lost == 0:
        return "same"
    if lost == 0:
        return "opposite" if base_lost == base_all else "not seen"
    return "cannot be told"


def no_gain(found: Interval, margin: float = MARGIN) -> Verdict:
    """The paper's arm is no better. A gain that is certain is the opposite; one of `margin` that is excluded is the same."""
    if found.low is None or found.high is None:
        return "cannot be told"
    if found.low > 0:
        return "opposite"
    return "same" if found.high < margin else "cannot be told"


def both(one: Verdict, two: Verdict) -> Verdict:
    """Of a claim with two halves: its weaker half."""
    order: tuple[Verdict, ...] = ("opposite", "not seen", "cannot be told", "same")
    return min(one, two, key=order.index)


def shown(found: Interval, signed: bool = False) -> str:
    """`-0.031 (-0.072 to 0.010)`."""
    if math.isnan(found.mean):
        return "no runs"
    form = "+.3f" if signed else ".3f"
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
        return found, "cannot be told (n < 3)"
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
    best: Verdict = (
        "same" if set(ahead) == {"same"} else "opposite" if "opposite" in ahead else "cannot be told"
    )
    base = collapses(runs, "minirl")
    _, entropy = ratio(runs, "no_is", "minirl", "entropy")
    kl, kl_text = ratio(runs, "r3", "minirl", "mismatch_kl")
    no_is = collapses(runs, "no_is")
    return [
        Claim("MiniRL is the best and most stable arm",
              f"score {shown(spread([score(run) for run in runs if run.arm == 'minirl']))}; {lost(runs, 'minirl')}; the others less MiniRL: "
              + "; ".join(f"{arm} {shown(found, True)}" for arm, found in differences.items()), best),
        Claim("without the IS weight: fast collapse with a sharp drop of entropy",
              f"{lost(runs, 'no_is')}; score against MiniRL {shown(differences['no_is'], True)}; late entropy {entropy}",
              by_collapse(no_is, base)),
        Claim("with length normalisation: stable",
              lost(runs, "length_norm"), _stable(collapses(runs, "length_norm"))),
        Claim("with length normalisation: lower score",
              f"score against MiniRL {shown(differences['length_norm'], True)}", by_sign(differences["length_norm"], -1)),
        Claim("with R3: lower mismatch KL", f"late KL {kl_text}", by_sign(kl, -1, margin=0.1)),
        Claim("with R3: no gain", f"score against MiniRL {shown(differences['r3'], True)}; {lost(runs, 'r3')}", no_gain(differences["r3"])),
    ]  # fmt: skip


def _stable(found: tuple[int, int]) -> Verdict:
    number, every = found
    return "cannot be told" if every < 3 or 0 < number < every else "same" if number == 0 else "opposite"


def off_policy(runs: Sequence[Outcome], on: Sequence[Outcome] = ()) -> list[Claim]:
    """Figure 3 of the paper, and an arm it does not show."""
    recipe = collapses(runs, "clip_r3")
    against = {
        arm: paired(runs, arm, "clip_r3", score) for arm in ("no_clip", "r2_no_clip", "clip_r2", "clip")
    }
    r3 = paired(runs, "clip_r3", "clip_r2", score)
    rows = [
        Claim(f"{words}: early collapse", f"{lost(runs, arm)}; score against clip and R3 {shown(against[arm], True)}",
              by_collapse(collapses(runs, arm), recipe))
        for arm, words in (("no_clip", "no clip, no replay"), ("r2_no_clip", "no clip, R2"))
    ]  # fmt: skip
    peaks = (
        spread([run.best for run in runs if run.arm == "clip_r3"]),
        spread([run.best for run in on if run.arm == "minirl"]),
    )
    gap = _unpaired_by_seed(runs, on)
    return [
        Claim("clip and R3 is stable", lost(runs, "clip_r3"), _stable(recipe)),
        *rows,
        Claim("clip and R2: unstable in the end", lost(runs, "clip_r2"), by_collapse(collapses(runs, "clip_r2"), recipe)),
        Claim("clip: R3 scores above R2", f"R3 less R2 {shown(r3, True)}", by_sign(r3, 1)),
        Claim("clip, no replay: not among the arms of the paper's text",
              f"{lost(runs, 'clip')}; score against clip and R3 {shown(against['clip'], True)}", "cannot be told"),
        Claim("stabilised runs reach a similar peak on and off policy",
              f"best held-out score: clip and R3, N = 4, {shown(peaks[0])}; MiniRL, N = 1, {shown(peaks[1])}; difference {shown(gap, True)}",
              _similar(gap)),
    ]  # fmt: skip


def _unpaired_by_seed(runs: Sequence[Outcome], on: Sequence[Outcome]) -> Interval:
    """Best score of the recipe off policy less MiniRL's on policy, by seed: both begin at the same start."""
    base = {run.seed: run.best for run in on if run.arm == "minirl"}
    return spread([run.best - base[run.seed] for run in runs if run.arm == "clip_r3" and run.seed in base])


def _similar(found: Interval) -> Verdict:
    if found.low is None or found.high is None:
        return "cannot be told"
    if found.low > -MARGIN and found.high < MARGIN:
        return "same"
    return "opposite" if found.low > MARGIN or found.high < -MARGIN else "cannot be told"
