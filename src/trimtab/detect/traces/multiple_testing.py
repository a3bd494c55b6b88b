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
    """`p` is corrected for all tests of the family (Bonferroni), `low` to `high` is the interval that holds
    for all of them at once: it contains 0 just where `p` is at the level or above. nan where it cannot be
    judged, and the interval of a number that is one and the same on each side. The same within tasks, which
    are tests of the same family; nan where there was none. `real`, `real_within`: p is below the level.
    `family`: its tests."""

    contrast: Contrast
    low: float
    high: float
    p: float
    within_low: float
    within_high: float
    within_p: float
    real: bool
    real_within: bool
    family: int


@dataclass(frozen=True)
class _Test:
    """A difference to judge; `few`: clusters of the side that has fewer."""

    yes_no: bool
    size: float  # of the means
    difference: float
    se: float
    clusters: int
    clusters_a: int
    clusters_b: int

    @property
    def few(self) -> int:
        return min(self.clusters_a, self.clusters_b)


def judge_contrasts(contrasts: Sequence[Contrast], budget: float = 1.0) -> list[JudgedContrast]:
    """Each contrast with its interval and corrected p, the most certain first.

    Student's t with (clusters - 1) degrees of freedom; the within-task one with (mixed - 1). Where nothing
    varies about a difference (`Contrast.se` is 0) t knows no p and no interval: see `_p_apart` and
    `_at_most`. Intervals of yes-or-no features lie in -1..1.

    Args:
        contrasts: One family: of all their tests, plain and within tasks, one errs once in twenty at most.
        budget: Part of the family-wise level that is theirs, where others are asked beside them.

    Returns:
        In the order of their p. Interval and decision agree: Bonferroni's for both.

    Example:
        >>> one = Contrast("calls", False, 3.0, 1.0, 40, 40, 2.0, 0.5, 20, 20, 20)
        >>> (judged,) = judge_contrasts([one])
        >>> judged.real, round(judged.low, 2), round(judged.p, 4)
        (True, 0.95, 0.0008)

    Reference:
        Dunn, Multiple comparisons among means, 1961.
    """
    level = bound("trace_level")
    plain = [_plain(c) for c in contrasts]
    inside = [_inside(c) for c in contrasts]
    ps = [[_p(test)[0] for test in tests] for tests in (plain, inside)]
    family = sum(math.isfinite(p) for some in ps for p in some)
    factor = family / budget
    judged = []
    for i, c in enumerate(contrasts):
        p, within_p = (min(1.0, factor * some[i]) if math.isfinite(some[i]) else math.nan for some in ps)
        ends, ends_in = (_ends(test, level / max(factor, 1.0)) for test in (plain[i], inside[i]))
        judged.append(
            JudgedContrast(c, *ends, p, *ends_in, within_p, p < level, within_p < level, max(family, 1))
        )
    order = sorted(
        range(len(contrasts)), key=lambda i: (_last(judged[i].p), _last(ps[0][i]), -_p(plain[i])[1])
    )
    return [judged[i] for i in order]


def _plain(c: Contrast) -> _Test:
    size = max(abs(c.mean_a), abs(c.mean_b))
    return _Test(c.yes_no, size, c.difference, c.se, c.clusters, c.clusters_a, c.clusters_b)


def _inside(c: Contrast) -> _Test:
    size = max(abs(c.mean_a), abs(c.mean_b))
    return _Test(c.yes_no, size, c.within, c.within_se, c.mixed, c.mixed, c.mixed)


def _last(p: float) -> float:
    return p if math.isfinite(p) else math.inf


def _p(test: _Test) -> tuple[float, float]:
    """Two-sided p and |t|, nan and 0 where it cannot be judged; a difference below rounding is none."""
    if abs(test.difference) <= ROUNDING * max(test.size, 1e-300):
        return (1.0, 0.0) if test.clusters >= 2 else (math.nan, 0.0)
    if not (math.isfinite(test.difference) and math.isfinite(test.se)) or test.clusters < 2:
        return math.nan, 0.0
    if test.se == 0:
        return _p_apart(test), math.inf
    t = abs(test.difference) / test.se
    return 2 * t_tail(t, min(test.clusters - 1, _MOST)), t


def _p_apart(test: _Test) -> float:
    """Of sides that are wholly apart: by how few ways tasks fall so; of shares at least the p at which the
    interval (`_at_most`) ends at 0: Wilson's z is then the root of the difference times the tasks."""
    p = _apart(test.clusters, test.clusters_a, test.clusters_b)
    if not test.yes_no:
        return p
    z = math.sqrt(test.few * abs(test.difference))
    return max(p, math.erfc(z / math.sqrt(2)))


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


def _ends(test: _Test, level: float) -> tuple[float, float]:
    """The interval at 1 - `level`."""
    if not math.isfinite(test.se) or test.clusters < 2:
        return math.nan, math.nan
    if test.se == 0:
        return _at_most(test.difference, test.few, level) if test.yes_no else (math.nan, math.nan)
    half = test.se * _quantile(level / 2, min(test.clusters - 1, _MOST))
    low, high = test.difference - half, test.difference + half
    return (max(low, -1.0), min(high, 1.0)) if test.yes_no else (low, high)


def _at_most(difference: float, few: int, level: float) -> tuple[float, float]:
    """All of a few tasks say one difference of shares. At most Wilson's upper end of none in so many say
    another, and that lies in -1..1.

    >>> [round(end, 2) for end in _at_most(1.0, 10, 0.05)], [round(end, 2) for end in _at_most(0.0, 10, 0.05)]
    ([0.44, 1.0], [-0.28, 0.28])
    """
    other = share_interval(0.0, few, 1 - level)[1]
    return difference - other * (1 + difference), difference + other * (1 - difference)


_quantile = lru_cache(maxsize=256)(t_quantile)
