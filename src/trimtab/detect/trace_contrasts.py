"""Which differences between two sets of episodes are more than chance, when many are looked at?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from trimtab.catalog import bound
from trimtab.detect.student import t_quantile, t_tail
from trimtab.measure.trace_contrasts import Contrast

__all__ = ["JudgedContrast", "holm", "judge_contrasts"]

_MOST = 100  # degrees of freedom; with more the interval is up to 3 % too wide, never too narrow


@dataclass(frozen=True)
class JudgedContrast:
    """`low`, `high`: 95 % interval of the difference that holds for all contrasts of the family at once (Bonferroni); `p` is
    Holm's. The same within tasks, as a family of its own; nan where there was none. `real`: p is below the level."""

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

    Student's t with (clusters - 1) degrees of freedom; the within-task one with (mixed - 1).
    """
    level = bound("trace_level")
    plain = [_judged(c, c.difference, c.se, c.clusters) for c in contrasts]
    inside = [_judged(c, c.within, c.within_se, c.mixed) for c in contrasts]
    corrected = holm([p for p, _ in plain])
    corrected_inside = holm([p for p, _ in inside])
    family = len(contrasts)
    num_inside = sum(math.isfinite(p) for p, _ in inside)
    found = []
    for i, c in enumerate(contrasts):
        half = _half(c.se, c.clusters, level / max(family, 1))
        half_in = _half(c.within_se, c.mixed, level / max(num_inside, 1))
        found.append(
            JudgedContrast(
                c,
                c.difference - half,
                c.difference + half,
                corrected[i],
                c.within - half_in,
                c.within + half_in,
                corrected_inside[i],
                corrected[i] < level,
                family,
            )
        )
    order = sorted(range(family), key=lambda i: (corrected[i], -plain[i][1]))
    return [found[i] for i in order]


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


def _judged(c: Contrast, difference: float, se: float, clusters: int) -> tuple[float, float]:
    """Two-sided p and |t|; a difference below rounding is none."""
    if abs(difference) <= 1e-12 * max(abs(c.mean_a), abs(c.mean_b), 1e-300):
        return (1.0, 0.0) if clusters >= 2 else (math.nan, 0.0)
    if not (math.isfinite(difference) and math.isfinite(se)) or clusters < 2:
        return math.nan, 0.0
    t = abs(difference) / se if se > 0 else math.inf if difference else 0.0
    return (0.0 if math.isinf(t) else 2 * t_tail(t, min(clusters - 1, _MOST))), t


def _half(se: float, clusters: int, level: float) -> float:
    if not math.isfinite(se) or clusters < 2:
        return math.nan
    return se * _quantile(level / 2, min(clusters - 1, _MOST))


_quantile = lru_cache(maxsize=256)(t_quantile)
