"""Which differences between two sets of episodes are more than chance, when many are looked at?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from trimtab.catalog import bound
from trimtab.measure.traces.contrasts import ROUNDING, Contrast
from trimtab.stats.intervals import share_interval
from trimtab.stats.student_t import t_quantile, t_tail

_MOST = 100  # degrees of freedom; with more the interval is up to 3 % too wide, never too narrow


@dataclass(frozen=True)
class JudgedContrast:
    """`low`, `high`: 95 % interval of the difference that holds for all contrasts of the family at once
    (Bonferroni); `p` is Holm's. nan where it cannot be judged, and the interval of a number that is one and
    the same on each side. The same within tasks, as a family of its own; nan where there was none. `real`: p
    is below the level."""

    contrast: Contrast
    low: float
    high: float
    p: float
    within_low: float
    within_high: float
    within_p: float
    real: bool
    family: int


def judge_contrasts(contrasts: Sequence[Contrast]) -> list[JudgedContrast]:
    """Each contrast with its interval and corrected p, the most certain first.

    Student's t with (clusters - 1) degrees of freedom; the within-task one with (mixed - 1). Where nothing
    varies about a difference (`Contrast.se` is 0) t knows no p and no interval: see `_apart` and `_at_most`.
    Intervals of yes-or-no features lie in -1..1.
    """
    level = bound("trace_level")
    plain = [_judged(c, c.difference, c.se, c.clusters, c.clusters_a, c.clusters_b) for c in contrasts]
    inside = [_judged(c, c.within, c.within_se, c.mixed, c.mixed, c.mixed) for c in contrasts]
    corrected = holm([p for p, _ in plain])
    corrected_inside = holm([p for p, _ in inside])
    family = len(contrasts)
    num_inside = sum(math.isfinite(p) for p, _ in inside)
    judged = []
    for i, c in enumerate(contrasts):
        few = min(c.clusters_a, c.clusters_b)
        ends = _ends(c.yes_no, c.difference, c.se, c.clusters, few, level / max(family, 1))
        ends_in = _ends(c.yes_no, c.within, c.within_se, c.mixed, c.mixed, level / max(num_inside, 1))
        real = corrected[i] < level
        judged.append(JudgedContrast(c, *ends, corrected[i], *ends_in, corrected_inside[i], real, family))
    order = sorted(
        range(family), key=lambda i: (*(_last(p) for p in (corrected[i], plain[i][0])), -plain[i][1])
    )
    return [judged[i] for i in order]


def _last(p: float) -> float:
    return p if math.isfinite(p) else math.inf


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p values; nan ones stay nan and do not count.

    >>> holm([0.01, 0.04, 0.03, float("nan")])
    [0.03, 0.06, 0.06, nan]
    """
    order = sorted((i for i, p in enumerate(ps) if math.isfinite(p)), key=lambda i: ps[i])
    adjusted, worst = [math.nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


def _judged(
    c: Contrast, difference: float, se: float, clusters: int, clusters_a: int, clusters_b: int
) -> tuple[float, float]:
    """Two-sided p and |t|, nan and 0 where it cannot be judged; a difference below rounding is none."""
    if abs(difference) <= ROUNDING * max(abs(c.mean_a), abs(c.mean_b), 1e-300):
        return (1.0, 0.0) if clusters >= 2 else (math.nan, 0.0)
    if not (math.isfinite(difference) and math.isfinite(se)) or clusters < 2:
        return math.nan, 0.0
    if se == 0:
        return _apart(clusters, clusters_a, clusters_b), math.inf
    t = abs(difference) / se
    return 2 * t_tail(t, min(clusters - 1, _MOST)), t


def _apart(clusters: int, clusters_a: int, clusters_b: int) -> float:
    """p of sides that are wholly apart: how few of the ways to give whole tasks to the sides, and to swap the
    sides of tasks with both, are so.

    >>> round(_apart(20, 10, 10) * math.comb(20, 10), 9), round(_apart(10, 10, 10) * 2**10, 9)
    (2.0, 2.0)
    """
    mixed = clusters_a + clusters_b - clusters
    only_a, only_b = clusters - clusters_b, clusters - clusters_a
    ways = math.lgamma(only_a + only_b + 1) - math.lgamma(only_a + 1) - math.lgamma(only_b + 1)
    return min(1.0, 2 * math.exp(-mixed * math.log(2) - ways))


def _ends(
    yes_no: bool, difference: float, se: float, clusters: int, few: int, level: float
) -> tuple[float, float]:
    """The interval at 1 - `level`; `few`: clusters of the side that has fewer."""
    if not math.isfinite(se) or clusters < 2:
        return math.nan, math.nan
    if se == 0:
        return _at_most(difference, few, level) if yes_no else (math.nan, math.nan)
    half = se * _quantile(level / 2, min(clusters - 1, _MOST))
    low, high = difference - half, difference + half
    return (max(low, -1.0), min(high, 1.0)) if yes_no else (low, high)


def _at_most(difference: float, few: int, level: float) -> tuple[float, float]:
    """All of a few tasks say one difference of shares. At most Wilson's upper end of none in so many say
    another, and that lies in -1..1.

    >>> [round(end, 2) for end in _at_most(1.0, 10, 0.05)], [round(end, 2) for end in _at_most(0.0, 10, 0.05)]
    ([0.44, 1.0], [-0.28, 0.28])
    """
    other = share_interval(0.0, few, 1 - level)[1]
    return difference - other * (1 + difference), difference + other * (1 - difference)


_quantile = lru_cache(maxsize=256)(t_quantile)
