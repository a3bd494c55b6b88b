"""How often is the task solved: by one set of episodes less another, and k times out of k?

The outcome is what a comparison is made for. It is one question, asked on its own and not among the features,
and where both sets hold the same tasks it is asked task by task: hard tasks are hard for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.measure.traces.builder import Maker
from trimtab.measure.traces.contrasts import ROUNDING, Contrast, clusters_of_sides, difference
from trimtab.traces.table.types import TraceTable

MAX_K = 8
"""The largest k of pass^k that is shown."""


@dataclass(frozen=True)
class PassK:
    """`value`: the chance that k attempts at a task all solve it, mean over `tasks`; `left_out`: tasks of
    fewer than k known outcomes."""

    k: int
    value: float
    tasks: int
    left_out: int


def pass_k(table: TraceTable, solved: npt.NDArray[Any]) -> list[PassK]:
    """pass^k for k = 1, 2, ... as long as half of the tasks have k known outcomes; empty where that is one
    attempt a task.

    The unbiased estimator of tau-bench (Yao et al. 2024, arXiv 2406.12045): mean over tasks of C(c, k) / C(n,
    k), c of n attempts solved. `solved` (E,) is `TraceTable.solved`'s.

    >>> from trimtab.traces.core.episode import Episode
    >>> from trimtab.traces.table.build import tabulate
    >>> log = [Episode(id=str(i), task="t", success=i < 2) for i in range(3)]  # two of three attempts
    >>> table = tabulate(log)
    >>> [(row.k, round(row.value, 4)) for row in pass_k(table, table.success)]
    [(1, 0.6667), (2, 0.3333), (3, 0.0)]
    """
    known = (solved >= 0) & (table.task >= 0)
    n = np.bincount(table.task[known], minlength=len(table.tasks))
    c = np.bincount(table.task[known], solved[known] == 1, len(table.tasks)).astype(np.int64)
    n, c = n[n > 0], c[n > 0]
    estimates = []
    for k in range(1, MAX_K + 1):
        enough = n >= k
        if 2 * int(enough.sum()) < n.size or not n.size:
            break
        each = [
            math.comb(int(wins), k) / math.comb(int(all), k)
            for wins, all in zip(c[enough], n[enough], strict=True)
        ]
        estimates.append(PassK(k, math.fsum(each) / len(each), len(each), int((~enough).sum())))
    return estimates if len(estimates) > 1 else []


def outcome_contrast(
    table: TraceTable, is_a: npt.NDArray[np.bool_], values: npt.NDArray[Any], name: str, yes_no: bool
) -> tuple[Contrast, bool] | None:
    """The difference of an outcome `values` (E,; nan unknown) between episodes `is_a` and the others, and
    whether it is paired by task: the mean over the tasks that both have of a's mean less b's, where there are
    ten such tasks, else the plain difference with standard errors clustered by task. None where a side has no
    outcome, or there are too few tasks for either."""
    min_count = bound("trace_contrast_min")
    keep = np.isfinite(values)
    x, a, tasks = values[keep].astype(np.float64), is_a[keep], table.task[keep]
    if not a.any() or a.all():
        return None
    means = (float(x[a].mean()), float(x[~a].mean()), int(a.sum()), int((~a).sum()))
    size = len(table.tasks)
    sums = [np.bincount(tasks[side & (tasks >= 0)], x[side & (tasks >= 0)], size) for side in (a, ~a)]
    counts = [np.bincount(tasks[side & (tasks >= 0)], minlength=size) for side in (a, ~a)]
    both = (counts[0] > 0) & (counts[1] > 0)
    g = int(both.sum())
    if g >= min_count:
        gaps = sums[0][both] / counts[0][both] - sums[1][both] / counts[1][both]
        same = float(gaps.max() - gaps.min()) <= ROUNDING * max(float(np.abs(x).max()), 1e-300)
        se = 0.0 if same else float(gaps.std(ddof=1)) / math.sqrt(g)
        return Contrast(name, yes_no, *means, float(gaps.mean()), se, g, g, g), True
    clusters = Maker(table).clusters[keep]
    gap, se, groups = difference(x, a, clusters)
    if groups < min_count or min(means[2:]) < min_count:
        se = math.nan
    return Contrast(name, yes_no, *means, gap, se, groups, *clusters_of_sides(clusters, a)), False


def solved_interval(table: TraceTable, solved: npt.NDArray[Any]) -> tuple[float, float]:
    """95 % interval of the share solved, attempts at one task not being independent; (nan, nan) without a
    known outcome."""
    maker, known = Maker(table), (solved >= 0) * 1.0
    fraction = maker.share("traces/solved_frac", (solved == 1) * 1.0, known, maker.clusters).reading
    return fraction.low, fraction.high
