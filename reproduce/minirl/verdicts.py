"""From an interval or a count of collapses to a verdict: same as the paper, not seen, opposite, undecided, cannot be judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from reproduce.minirl.reading import Interval

__all__ = [
    "MARGIN",
    "Verdict",
    "both",
    "by_collapse",
    "by_sign",
    "no_gain",
    "similar",
    "stable",
    "unless_common",
]

Verdict = Literal["same", "not seen", "opposite", "undecided", "cannot be judged", "no claim"]
MARGIN = 0.05  # of score: a smaller difference in the paper's direction counts as none (house choice)


def by_sign(found: Interval, sign: int, margin: float = MARGIN) -> Verdict:
    """Does the interval lie on the paper's side of zero, on the other, or exclude a difference of `margin` on the paper's side?

    >>> by_sign(Interval(-0.2, -0.3, -0.1, 3), -1), by_sign(Interval(-0.2, -0.5, 0.1, 3), -1), by_sign(Interval(0, -0.02, 0.02, 3), -1)
    ('same', 'undecided', 'not seen')
    """
    if found.low is None or found.high is None:
        return "undecided"
    low, high = (found.low, found.high) if sign > 0 else (-found.high, -found.low)
    if low > 0:
        return "same"
    if high < 0:
        return "opposite"
    return "not seen" if high < margin else "undecided"


def by_collapse(arm: tuple[int, int], base: tuple[int, int]) -> Verdict:
    """The paper's arm collapses and its base does not. All against none is the same; none at all is not seen.

    >>> by_collapse((3, 3), (0, 3)), by_collapse((0, 3), (0, 3)), by_collapse((1, 3), (0, 3)), by_collapse((0, 3), (3, 3))
    ('same', 'not seen', 'undecided', 'opposite')
    """
    (lost, all_), (base_lost, base_all) = arm, base
    if min(all_, base_all) < 3:
        return "undecided"
    if lost == all_ and base_lost == 0:
        return "same"
    if lost == 0:
        return "opposite" if base_lost == base_all else "not seen"
    return "undecided"


def no_gain(found: Interval, base: float = 0.0, margin: float = MARGIN) -> Verdict:
    """The paper's arm is no better. A gain that is certain is the opposite; one of `margin` that is excluded is the same.

    `base`: mean score of the arm that it is compared with. A score ends at 1, so above 1 - `margin` no arm can gain that much.

    >>> no_gain(Interval(-0.1, -0.2, 0.0, 4)), no_gain(Interval(-0.1, -0.2, 0.0, 4), base=0.98)
    ('same', 'cannot be judged')
    """
    if found.low is None or found.high is None:
        return "undecided"
    if found.low > 0:
        return "opposite"
    if base + margin > 1:
        return "cannot be judged"
    return "same" if found.high < margin else "undecided"


def unless_common(own: Verdict, others: Sequence[Verdict], contrary: Verdict) -> Verdict:
    """A verdict from "no run collapses", unless nearly every arm of the table earns it too: all the others but at most one.

    A few runs without a collapse are then no evidence for the one arm of which the paper says it. Where another arm shows the contrary, collapses
    can happen in this table, and the verdict stands.

    >>> unless_common("same", ["same", "undecided", "same"], "opposite"), unless_common("same", ["same", "opposite", "same"], "opposite")
    ('cannot be judged', 'same')
    """
    nearly_all = sum(other == own for other in others) >= max(1, len(others) - 1)
    return "cannot be judged" if nearly_all and contrary not in others else own


def both(one: Verdict, two: Verdict) -> Verdict:
    """Of a claim with two halves: its weaker half."""
    order: tuple[Verdict, ...] = ("opposite", "not seen", "cannot be judged", "undecided", "same")
    return min(one, two, key=order.index)


def stable(found: tuple[int, int]) -> Verdict:
    """(collapsed, all): none of at least three collapses."""
    number, every = found
    return "undecided" if every < 3 or 0 < number < every else "same" if number == 0 else "opposite"


def similar(found: Interval) -> Verdict:
    """Is the difference certainly within `MARGIN`, or certainly beyond it?"""
    if found.low is None or found.high is None:
        return "undecided"
    if found.low > -MARGIN and found.high < MARGIN:
        return "same"
    return "opposite" if found.low > MARGIN or found.high < -MARGIN else "undecided"
