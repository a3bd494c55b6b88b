"""What the paper says, what we see, and a verdict that is computed (2512.01374, Figures 1 and 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from reproduce.minirl.reading import Interval, Outcome, collapses, paired, spread
from reproduce.minirl.verdicts import (
    Verdict,
    both,
    by_collapse,
    by_sign,
    no_gain,
    similar,
    stable,
    unless_common,
)

__all__ = ["Claim", "load_balancing", "off_policy", "on_policy", "score", "shown"]

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


def arm_is_stable(runs: Sequence[Outcome], arm: str) -> Verdict:
    """No run of the arm collapses, and that is not what nearly every arm shows."""
    own, others = (
        stable(collapses(runs, arm)),
        [stable(collapses(runs, other)) for other in _others(runs, arm)],
    )
    return unless_common(own, others, "opposite") if own == "same" else own


def arm_collapses(runs: Sequence[Outcome], arm: str, base: str) -> Verdict:
    """The arm collapses and its base does not; that none of its runs does, and that this is not what nearly every arm shows."""
    own, *others = (
        by_collapse(collapses(runs, one), collapses(runs, base)) for one in (arm, *_others(runs, arm, base))
    )
    return unless_common(own, others, "same") if own == "not seen" else own


def _others(runs: Sequence[Outcome], *arms: str) -> list[str]:
    return [name for name in dict.fromkeys(run.arm for run in runs) if name not in arms]


def on_policy(runs: Sequence[Outcome]) -> list[Claim]:
    """Figure 1 of the paper."""
    others = ("no_is", "length_norm", "r3")
    differences = {arm: paired(runs, arm, "minirl", score) for arm in others}
    own = spread([score(run) for run in runs if run.arm == "minirl"])
    ahead = [by_sign(found, -1) for found in differences.values()]
    best: Verdict = "same" if set(ahead) == {"same"} else "opposite" if "opposite" in ahead else "undecided"
    _, entropy = ratio(runs, "no_is", "minirl", "entropy")
    kl, kl_text = ratio(runs, "r3", "minirl", "mismatch_kl")
    return [
        Claim("MiniRL is the best and most stable arm",
              f"score {shown(own)}; {lost(runs, 'minirl')}; the others less MiniRL: "
              + "; ".join(f"{arm} {shown(found, SIGNED)}" for arm, found in differences.items()), best),
        Claim("without the IS weight: fast collapse with a sharp drop of entropy",
              f"{lost(runs, 'no_is')}; score against MiniRL {shown(differences['no_is'], SIGNED)}; late entropy {entropy}",
              arm_collapses(runs, "no_is", "minirl")),
        Claim("with length normalisation: stable",
              lost(runs, "length_norm"), arm_is_stable(runs, "length_norm")),
        Claim("with length normalisation: lower score",
              f"score against MiniRL {shown(differences['length_norm'], SIGNED)}", by_sign(differences["length_norm"], -1)),
        Claim("with R3: lower mismatch KL", f"late KL {kl_text}", by_sign(kl, -1, margin=LEAST_LOG)),
        Claim("with R3: no gain", f"score against MiniRL {shown(differences['r3'], SIGNED)}; {lost(runs, 'r3')}", no_gain(differences["r3"], own.mean)),
    ]  # fmt: skip


def load_balancing(runs: Sequence[Outcome]) -> list[Claim]:
    """What the auxiliary loss does that TRL adopts from the model's config; no row where no run has it."""
    mine = [run for run in runs if run.arm == "aux_loss"]
    if not mine:
        return []
    part, end = mine[0].config["router_aux_loss_coef"], min(run.steps for run in mine)
    others = [run for run in runs if run.arm == "minirl" and run.seed in {run.seed for run in mine}]
    early = sum(run.collapsed is not None and run.collapsed <= end for run in others)
    policy, router = (
        spread([float(run.series[name][1].mean()) for run in mine]) for name in ("policy_loss", "aux_loss")
    )
    above = [
        100 * float(np.mean([run.series[name][1] > 0 for run in mine])) for name in ("policy_loss", "loss")
    ]
    difference = paired(runs, "aux_loss", "minirl", lambda run: run.late("reward", end))
    return [
        Claim(f"no claim of the paper, which does not name it: the router's load-balancing loss, {part:g} times",
              f"{lost(runs, 'aux_loss')}, without it {early} of {len(others)} by step {end}; reward of the last quarter of {end} steps against MiniRL at the "
              f"same seeds {shown(difference, SIGNED)}; mean objective {policy.mean:+.4f}, mean of what is added {part * router.mean:+.4f}; above zero "
              f"are {above[0]:.0f} % of the objectives and {above[1]:.0f} % of the logged losses",
              "no claim"),
    ]  # fmt: skip


def off_policy(runs: Sequence[Outcome], on: Sequence[Outcome] = ()) -> list[Claim]:
    """Figure 3 of the paper, and an arm it does not show."""
    against = {
        arm: paired(runs, arm, "clip_r3", score) for arm in ("no_clip", "r2_no_clip", "clip_r2", "clip")
    }
    r3 = paired(runs, "clip_r3", "clip_r2", score)
    rows = [
        Claim(f"{words}: early collapse", f"{lost(runs, arm)}; score against clip and R3 {shown(against[arm], SIGNED)}",
              arm_collapses(runs, arm, "clip_r3"))
        for arm, words in (("no_clip", "no clip, no replay"), ("r2_no_clip", "no clip, R2"))
    ]  # fmt: skip
    recipe, base = [run for run in runs if run.arm == "clip_r3"], [run for run in on if run.arm == "minirl"]
    end = min((run.steps for run in (*recipe, *base)), default=0)
    peaks = spread([run.best_by(end) for run in recipe]), spread([run.best_by(end) for run in base])
    gap = _gap_of_peaks(recipe, base, end)
    stale, stale_text = ratio(runs, "clip_r2", "clip", "staleness_p99")
    kl, kl_text = ratio(runs, "clip_r3", "clip", "mismatch_kl")
    return [
        Claim("clip and R3 is stable", lost(runs, "clip_r3"), arm_is_stable(runs, "clip_r3")),
        *rows,
        Claim("clip and R2: unstable in the end", lost(runs, "clip_r2"), arm_collapses(runs, "clip_r2", "clip_r3")),
        Claim("clip: R3 scores above R2", f"R3 less R2 {shown(r3, SIGNED)}", by_sign(r3, 1)),
        Claim("clip, no replay: not among the arms of the paper's text",
              f"{lost(runs, 'clip')}; score against clip and R3 {shown(against['clip'], SIGNED)}", "no claim"),
        Claim("R2 shrinks the staleness, R3 the mismatch too",
              f"against clip alone: late p99 of the staleness with R2 {stale_text}, KL(mu, pi_old) with R3 {kl_text}",
              both(by_sign(stale, -1, margin=LEAST_LOG), by_sign(kl, -1, margin=LEAST_LOG))),
        Claim("stabilised runs reach a similar peak on and off policy",
              f"best held-out score of {end} steps: clip and R3, N = 4, {shown(peaks[0])}; MiniRL, N = 1, {shown(peaks[1])}; difference {shown(gap, SIGNED) if gap.n else 'unknown: they begin at different starts'}",
              similar(gap) if gap.n or not (recipe and base) else "cannot be judged"),
    ]  # fmt: skip


def _gap_of_peaks(recipe: Sequence[Outcome], base: Sequence[Outcome], end: int) -> Interval:
    """Best score of the recipe off policy less MiniRL's on policy, by seed, within as many steps, where both begin at the same start.

    One start gives the same first score at the same seed.
    """
    peaks = {(run.seed, run.held_out[1][0]): run.best_by(end) for run in base}
    found = [(run.best_by(end), peaks.get((run.seed, run.held_out[1][0]), math.nan)) for run in recipe]
    return spread([own - other for own, other in found])
