"""Patterns that are commoner in some completions: log-odds with intervals that hold for all at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

_MIN_DOCUMENTS = 5
"""Completions that must hold a pattern before it is tested."""


@dataclass(frozen=True)
class Enriched:
    """One pattern: its log-odds ratio, newly high-scoring completions against the others."""

    pattern: str
    log_odds: float  # nats
    low: float  # interval at level 0.95 for all tested patterns at once (Bonferroni)
    high: float
    frac_new: float  # of the newly high-scoring completions that hold it
    frac_old: float  # of the others


def enriched_patterns(
    new: Sequence[frozenset[str]], old: Sequence[frozenset[str]], limit: int = 20
) -> tuple[list[Enriched], int]:
    """Return patterns whose interval lies above zero, highest lower end first, and how many were tested.

    Log-odds of presence in a completion with one half added to each cell; its variance is the sum of the
    reciprocal cells. Of patterns that stand in the same completions one is returned.

    Args:
        new: patterns of each newly high-scoring completion.
        old: patterns of each other one.

    Reference:
        Haldane 1956, Gart 1966.
    """
    counts_new, counts_old = (Counter(p for one in docs for p in one) for docs in (new, old))
    tested = [p for p, n in counts_new.items() if n + counts_old[p] >= _MIN_DOCUMENTS]
    if not tested or not new or not old:
        return [], 0
    z = NormalDist().inv_cdf(1.0 - 0.025 / len(tested))
    rows = []
    for pattern in tested:
        a, b = counts_new[pattern], counts_old[pattern]
        cells = (a + 0.5, len(new) - a + 0.5, b + 0.5, len(old) - b + 0.5)
        value = math.log(cells[0] * cells[3] / (cells[1] * cells[2]))
        half = z * math.sqrt(sum(1.0 / cell for cell in cells))
        if value - half > 0:
            rows.append(Enriched(pattern, value, value - half, value + half, a / len(new), b / len(old)))
    rows.sort(key=lambda row: (not row.pattern.startswith("sign"), -row.low, len(row.pattern)))
    return _distinct(rows, new, limit), len(tested)


def _distinct(rows: list[Enriched], new: Sequence[frozenset[str]], limit: int) -> list[Enriched]:
    """The rows without those that stand in nearly the same completions as one before."""
    chosen: list[tuple[Enriched, frozenset[int]]] = []
    for row in rows[: 20 * limit]:
        where = frozenset(i for i, patterns in enumerate(new) if row.pattern in patterns)
        alike = any(len(where & other) > 0.9 * len(where | other) for _, other in chosen)
        if row.pattern.startswith('"') and alike:
            continue
        chosen.append((row, where))
        if len(chosen) == limit:
            break
    return [row for row, _ in chosen]
