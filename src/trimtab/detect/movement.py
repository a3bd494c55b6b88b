"""How quantities moved over an incident: the evidence that ranks its causes, live and stored alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np

from trimtab.catalog import bound
from trimtab.typing import Float64, Int64

_MAIN = ("post_tool", "text", "all")
_TOOL, _RANK = "post_tool/", "rank/"


class Movement(NamedTuple):
    """A quantity before an incident and during it; NaN where it was not observed.

    `slice` is where it moved most, `all` where no slice stands out.
    """

    before: float
    during: float
    slice: str = "all"


class Levels(NamedTuple):
    """Values of one quantity, and the steps they are of."""

    steps: Int64
    values: Float64


class Quantity(NamedTuple):
    """What evidence is taken from. It rose if it did by `min_rise`, and for a `ratio` to twice its level."""

    words: str
    series: str
    min_rise: str  # name of a bound
    ratio: bool = True
    slices: Literal["main", "all", "tools", "ranks"] = "all"
    during: Literal["high", "mean"] = "high"  # 90th percentile of the incident's steps, or their mean
    before: str = "incident_gap"  # name of a bound: the steps before the incident it is compared with


QUANTITIES = {
    "mismatch": Quantity(
        "the engines' mismatch (p95)", "mismatch/p95", "incident_nats", slices="main", during="mean"
    ),
    "mismatch_bulk": Quantity(
        "the engines' mismatch of nine tokens in ten (p90)", "mismatch/p90", "incident_bulk", during="mean"
    ),
    "mismatch_most": Quantity(
        "the engines' mismatch of three tokens in four (p75)", "mismatch/p75", "incident_most", during="mean"
    ),
    "far_tokens": Quantity(
        "the share of tokens that differ by 3 nats", "mismatch/above_3_frac", "incident_far", during="mean"
    ),
    "shifted": Quantity(
        "the share of sequences that fit when shifted by one token",
        "mismatch/shifted_frac",
        "incident_shifted",
        during="mean",
    ),
    "temperature": Quantity(
        "the correlation of mismatch with surprise and entropy",
        "mismatch/temperature_corr",
        "incident_corr",
        ratio=False,
        during="mean",
    ),
    "rank_mismatch": Quantity(
        "the mismatch of one rank alone (p95)", "mismatch/p95", "incident_nats", slices="ranks", during="mean"
    ),
    "staleness": Quantity(
        "the policy's distance from its sampling weights (p95)",
        "staleness/p95",
        "incident_update",
        slices="main",
        during="mean",
    ),
    # its damage shows late: by then rollouts may have been old for the last 20 steps
    "lag": Quantity(
        "the age of rollouts, in policy versions", "lag/mean", "incident_lag", before="incident_lag_before"
    ),
    "update": Quantity(
        "the size of an update (p95)", "update/p95", "incident_update", slices="main", during="mean"
    ),
    "results": Quantity(
        "the share of tool results that are trained on", "mask/result_frac", "incident_mask", during="mean"
    ),
    "silent": Quantity(
        "the share of sequences not trained on after their last tool result",
        "mask/silent_frac",
        "incident_silent",
        during="mean",
    ),
    "support": Quantity(
        "the share of tokens after one tool that the reference hardly supports",
        "support/below_5_frac",
        "incident_support",
        ratio=False,
        slices="tools",
        during="mean",
    ),
    "errors": Quantity(
        "the share of failed calls of one tool",
        "tools/error_frac",
        "incident_errors",
        slices="tools",
        during="mean",
    ),
    "solved": Quantity(
        "the share of groups that are solved by every rollout",
        "groups/solved_frac",
        "incident_groups",
        ratio=False,
        during="mean",
    ),
    "hopeless": Quantity(
        "the share of groups that are solved by no rollout",
        "groups/hopeless_frac",
        "incident_groups",
        ratio=False,
        during="mean",
    ),
    "sparse": Quantity("a few tokens that differ by 3 nats while three in four agree", "", "incident_far"),
    "opposed": Quantity(
        "how far parts of the reward go apart, in standard errors", "reward_part/opposed", "incident_opposed"
    ),
}
"""What hypotheses look at."""


def movements(
    series: Callable[[str, str], Levels | None],
    lag: Levels | None,
    first: int,
    last: int,
    *,
    slices: Collection[str] = (),
    only: Collection[str] = tuple(QUANTITIES),
) -> Mapping[str, Movement]:
    """Return how each quantity moved, in the slice where it moved most.

    Args:
        series: takes (series, slice), and returns its levels; None where it was not observed.
        lag: age of rollouts in policy versions, where a series of it is missing; None where that is too.
        first: first step of the incident.
        last: its last step so far, included; some steps after it count as well.
        slices: names of the slices there are, of tools, sources and ranks too.
        only: the quantities wanted; "sparse" needs "far_tokens" and "mismatch_most" beside it.
    """
    last += int(bound("incident_after"))
    moved: dict[str, Movement] = {}
    for name in only:
        quantity = QUANTITIES[name]
        rows = {
            where: movement(levels, first, last, quantity.during, before=quantity.before)._replace(
                slice=where
            )
            for where in (_slices_of(quantity, slices) if quantity.series else ())
            if (levels := series(quantity.series, where)) is not None
        }
        if quantity.slices == "ranks":
            rows = _apart(rows)
        if rows:
            moved[name] = max(rows.values(), key=_rise)
    if "far_tokens" in moved and not has_risen(moved.get("mismatch_most"), "mismatch_most"):
        moved["sparse"] = moved["far_tokens"]
    if "lag" in only and "lag" not in moved and lag is not None and lag.steps.size:
        moved["lag"] = movement(lag, first, last, before=QUANTITIES["lag"].before)
    return moved


def movement(
    levels: Levels, first: int, last: int, during: str = "high", *, before: str = "incident_gap"
) -> Movement:
    """Return the median of the steps before an incident, and the 90th percentile of the last ones in it.

    With `during` "mean" both are means. `before` names the bound on the steps before it that count.

    >>> movement(Levels(np.arange(10), np.array([1.0] * 5 + [8.0] * 5)), 5, 9)
    Movement(before=1.0, during=8.0, slice='all')
    """
    steps, values = levels
    earlier = values[(steps < first) & (steps >= first - bound(before))]
    inside = values[(steps >= first) & (steps <= last)][-int(bound("incident_latest")) :]
    if during == "mean":
        return Movement(_mean(earlier), _mean(inside))
    return Movement(
        float(np.median(earlier)) if earlier.size else math.nan,
        float(np.quantile(inside, 0.9, method="higher")) if inside.size else math.nan,
    )


def has_risen(one: Movement | None, name: str) -> bool | None:
    """Has a quantity risen? None where it was not observed.

    >>> has_risen(Movement(1.0, 8.0), "lag"), has_risen(Movement(1.0, 1.5), "lag"), has_risen(None, "lag")
    (True, False, None)
    """
    if one is None or math.isnan(one.before) or math.isnan(one.during):
        return None
    before, during, quantity = abs(one.before), abs(one.during), QUANTITIES[name]
    if quantity.ratio and not during >= bound("incident_rise") * before:
        return False
    return during - before >= bound(quantity.min_rise)


def _apart(rows: Mapping[str, Movement]) -> dict[str, Movement]:
    """The slice that rose by `incident_apart` times as much as any other, alone; nothing where none did."""
    order = sorted(rows.values(), key=_rise)
    if len(order) < 2 or not _rise(order[-1]) > bound("incident_apart") * max(_rise(order[-2]), 0.0):
        return {}
    return {order[-1].slice: order[-1]}


def _slices_of(quantity: Quantity, slices: Collection[str]) -> list[str]:
    if quantity.slices in ("main", "all"):
        return list(_MAIN) if quantity.slices == "main" else ["all"]
    prefix = _TOOL if quantity.slices == "tools" else _RANK
    return [name for name in slices if name.startswith(prefix)]


def _rise(one: Movement) -> float:
    """How far it rose; what was not observed did not."""
    rise = one.during - one.before
    return rise if rise == rise else -math.inf


def _mean(values: Float64) -> float:
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else math.nan
