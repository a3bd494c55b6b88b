"""Sizes of episodes: their rewards, turns, calls, tokens, seconds, cost and largest log-ratio, as means and
quantiles over episodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.traces.table.types import TraceTable


@dataclass(frozen=True)
class Size:
    """`n`: episodes that say it, and that the figures are of. `total` is None where a sum means nothing
    (rewards, log-ratios in nats)."""

    name: str
    n: int
    mean: float
    p5: float
    p50: float
    p95: float
    largest: float
    total: float | None


def sizes(table: TraceTable) -> Iterator[Size]:
    """The sizes that at least one episode says; what is NaN or infinite is left out of `n`. Quantiles as
    numpy's, linear.

    >>> from trimtab.traces.core.episode import Episode
    >>> from trimtab.traces.table.build import tabulate
    >>> [row] = [row for row in sizes(tabulate([Episode(id=str(i),
    ...     cost=float(i)) for i in range(3)])) if row.name == "cost"]
    >>> row.n, row.p50, row.largest, row.total
    (3, 1.0, 2.0, 3.0)
    """
    for name, values, adds in (
        ("reward", table.reward, False),
        ("assistant turns", table.counts["turns"].astype(np.float64), True),
        ("tool calls", table.counts["calls"].astype(np.float64), True),
        ("tokens", table.tokens, True),
        ("seconds", table.duration_s, True),
        ("cost", table.cost, True),
        ("largest |log-ratio|", table.ratio, False),
    ):
        known = values[np.isfinite(values)]
        if known.size:
            low, middle, high = (float(q) for q in np.quantile(known, [0.05, 0.5, 0.95]))
            total = float(known.sum())
            yield Size(
                name,
                int(known.size),
                total / known.size,
                low,
                middle,
                high,
                float(known.max()),
                total if adds else None,
            )
