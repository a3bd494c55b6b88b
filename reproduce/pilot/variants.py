"""How much hangs on a choice: the same median lead under every threshold rule, null, set of averages, and with each seed left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np

from reproduce.pilot.leads import AVERAGES, QUIET, at_quantile, lead_of, limits_of, moments, null_runs, widest
from reproduce.pilot.reading import QUANTILES, Outcome

__all__ = ["CHOSEN", "LEAST", "RULES", "WITHOUT", "Choice", "choices", "leads_of", "limits_for", "medians", "nulls", "verdict"]  # fmt: skip

LEAST = 3  # runs or seeds; with fewer neither median nor interval is given

RULES: dict[str, Callable[[Sequence[Outcome]], dict[str, float]]] = {
    "limit, each": limits_of,
    "limit, shared": partial(limits_of, shared=True),
    "largest": widest,
}
WITHOUT: dict[str, tuple[str, ...]] = {
    "none": (),
    "reward": ("reward",),
    "entropy": ("entropy",),
    "both": ("reward", "entropy"),
}
"""Averages left out: the reward falls with the schedule alone, and the entropy's threshold lies below where it starts."""


@dataclass(frozen=True)
class Choice:
    """One way to set thresholds, to say which averages count and which quantile of a tail is read. `left_out`: seeds that set no threshold."""

    rule: str = "limit, each"
    without: str = "none"
    arms: tuple[str, ...] = QUIET
    left_out: tuple[int, ...] = ()
    quantile: str = QUANTILES[0]


CHOSEN = Choice()


def nulls(runs: Sequence[Outcome]) -> list[tuple[int, ...]]:
    """No seed left out, then each seed of the quiet runs by itself."""
    return [(), *((seed,) for seed in sorted({run.seed for run in null_runs(runs)}))]


def choices(
    runs: Sequence[Outcome], rule: str | None = None, without: str | None = None, name: str = ""
) -> list[Choice]:
    """Every combination: rule x averages x quiet arms (both, either) x seed left out x quantile; of one rule or set of averages where
    named, and of the quantiles at which the tail `name` was recorded."""
    arms = (QUIET, *((arm,) for arm in QUIET))
    rules, sets = ([rule] if rule else list(RULES)), ([without] if without else list(WITHOUT))
    quantiles = [q for q in QUANTILES if not name or at_quantile(name, q)]
    return [Choice(*each[1:], each[0]) for each in product(quantiles, rules, sets, arms, nulls(runs))]


def limits_for(runs: Sequence[Outcome], choice: Choice) -> dict[str, float]:
    """The thresholds this choice sets."""
    return _limits(
        choice.rule, tuple(run for run in null_runs(runs, choice.arms) if run.seed not in choice.left_out)
    )


@lru_cache(maxsize=512)
def _limits(rule: str, null: tuple[Outcome, ...]) -> dict[str, float]:
    return RULES[rule](null)


def leads_of(
    read: Sequence[Outcome], limits: Mapping[str, float], name: str, without: str = "none"
) -> tuple[list[tuple[int, int]], int]:
    """(seed, lead) of the runs in which the tail or an average spoke, and in how many of them the tail did."""
    averages = [each for each in AVERAGES if each not in WITHOUT[without]]
    asked = {each: limits[each] for each in (*averages, name)}
    found = [(run, moments(run, asked)) for run in read]
    leads = [(run.seed, lead) for run, each in found if (lead := lead_of(run, each, name, averages)) is not None]  # fmt: skip
    return leads, sum(each[name] is not None for _, each in found)


def medians(
    runs: Sequence[Outcome], read: Sequence[Outcome], name: str, among: Sequence[Choice]
) -> list[float]:
    """The median lead under each choice; of those that leave fewer than three runs to read there is none."""
    found = []
    for choice in among:
        tail = at_quantile(name, choice.quantile)
        if tail is None:
            continue
        leads, _ = leads_of(read, limits_for(runs, choice), tail, choice.without)
        if len(leads) >= LEAST:
            found.append(float(np.median([lead for _, lead in leads])))
    return found


def verdict(values: Sequence[float]) -> str:
    """What numbers that should all be above zero allow to say: one sign throughout, or nothing."""
    if not values:
        return "undecided"
    if min(values) > 0:
        return "holds"
    return "does not hold" if max(values) < 0 else "undecided"
