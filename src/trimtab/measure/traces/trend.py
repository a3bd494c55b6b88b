"""The test whether a burst of failures is a steady trend, of a policy that learns or forgets.

Two models of an episode's failure are compared by their likelihood: one chance inside the window and
one outside; and a chance whose log-odds only rise or only fall, by six at most from the log's first episode
to its last, evenly, early or late. Either has a level of its own for each stratum (model and policy version).
"""

from __future__ import annotations

import numpy as np

from trimtab.catalog import bound
from trimtab.typing import Float64, Int64

_SLOPES = 25
_STEPS = 12


def is_trend(failed: Float64, first: int, end: int, strata: Int64 | None = None) -> bool:
    """Does a trend explain (n,) failures, 0 or 1, in order of time, about as well as the window from `first`
    to before `end`? `strata` (n,): small integers; None: all are of one.

    >>> import numpy as np
    >>> rng, t = np.random.default_rng(0), np.linspace(0, 1, 400)
    >>> learns, breaks = (rng.random(400) < 0.5 * np.exp(-4 * t)), (rng.random(400) < np.where(t > 0.8, 0.9,
    ...     0.05))
    >>> is_trend(learns * 1.0, 0, 128), is_trend(breaks * 1.0, 320, 400)
    (True, False)
    """
    inside = np.zeros(failed.size, bool)
    inside[first:end] = True
    code = np.zeros(failed.size, np.int64) if strata is None else strata
    away = np.bincount(code, ~inside)
    outside = np.bincount(code, failed * ~inside) / np.maximum(away, 1)
    block = _likelihood(failed, np.where(inside, failed[inside].mean(), outside[code]))
    when = np.linspace(0, 1, failed.size)
    slopes, margin = np.linspace(-1, 1, _SLOPES) * bound("trace_trend_range"), bound("trace_trend_margin")
    trends = (slope * bent for bent in (when, when**2, 1 - (1 - when) ** 2) for slope in slopes)
    return any(block - _likelihood(failed, _levelled(failed, trend, code)) < margin for trend in trends)


def _likelihood(failed: Float64, chance: Float64) -> float:
    """Its logarithm, in nats."""
    chance = np.clip(chance, 1e-9, 1 - 1e-9)
    return float(np.where(failed > 0, np.log(chance), np.log1p(-chance)).sum())


def _levelled(failed: Float64, trend: Float64, code: Int64) -> Float64:
    """(n,) chances of log-odds that follow the trend, at the level at which as many of each stratum fail as
    did (Newton's method)."""
    level = np.zeros(int(code.max()) + 1)
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-(trend + level[code])))
        curve = np.bincount(code, chance * (1 - chance))
        level += np.clip(np.bincount(code, failed - chance) / np.maximum(curve, 1e-9), -2, 2)
    chances: Float64 = 1 / (1 + np.exp(-(trend + level[code])))
    return chances
