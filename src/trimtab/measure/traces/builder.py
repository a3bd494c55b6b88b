"""Makes readings of a table of episodes: one place for windows, clusters and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trimtab.stats.array_kernels import dot
from trimtab.stats.intervals import effective_trials, share_interval
from trimtab.traces.table.types import Evidence, TraceTable
from trimtab.types import Reading, Window
from trimtab.typing import Array


@dataclass(frozen=True)
class Measured:
    """A reading and where it happened. `text`: what the numbers are of, in words, for a person."""

    reading: Reading
    evidence: tuple[Evidence, ...] = ()
    text: str = ""


class Maker:
    """Makes readings of one table; `clusters` (E,) numbers the tasks, an episode without one being its
    own."""

    def __init__(self, table: TraceTable) -> None:
        self.table, n = table, table.num_episodes
        own = np.arange(n) + len(table.tasks)
        _, self.clusters = np.unique(np.where(table.task >= 0, table.task, own), return_inverse=True)

    def value(
        self, key: str, value: float, n: int, where: str = "all", reason: str = "",
        ends: tuple[float, float] | None = None,
        evidence: Sequence[Evidence] | None = None, text: str = "",
    ) -> Measured:  # fmt: skip
        last = max(self.table.num_episodes - 1, 0)
        known = math.isfinite(value)
        low, high = ends or (math.nan, math.nan)
        reading = Reading(
            key, last, Window(0, last), where, value, n, self.table.num_episodes, low, high,
            status="ok" if known else "not observed", reason="" if known else reason,
        )  # fmt: skip
        return Measured(reading, tuple(evidence or ()), text)

    def share(
        self, key: str, hits: Array, trials: Array, clusters: npt.NDArray[np.int64], reason: str = "",
        evidence: Sequence[Evidence] | None = None, what: str = "",
    ) -> Measured:  # fmt: skip
        """Share of `hits` (E,) in `trials` (E,), whose interval knows that those of one of the `clusters`
        (E,) are alike."""
        n, k = float(trials.sum()), float(hits.sum())
        if not n:
            return self.value(key, math.nan, 0, reason=reason or "nothing to judge it by")
        ends = share_interval(k / n, min(independent(hits, trials), independent(hits, trials, clusters)))
        return self.value(
            key, k / n, int(n), ends=ends, evidence=evidence, text=f"{k:,.0f} of {n:,.0f} {what}"
        )


def independent(hits: Array, trials: Array, clusters: npt.NDArray[np.int64] | None = None) -> float:
    """`effective_trials` of `hits` (E,) in `trials` (E,), by `clusters` (E,), or by episode when they are
    None.

    Of the two the smaller is to be used: attempts at one task that cancel by chance are no more than
    themselves.
    """
    f = hits if clusters is None else np.bincount(clusters, hits)
    c = trials if clusters is None else np.bincount(clusters, trials)
    f, c = f[c > 0], c[c > 0]
    return effective_trials(float(c.sum()), float(f.sum()), c.size, dot(f, f), dot(f, c), dot(c, c))
