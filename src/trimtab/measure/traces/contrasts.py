"""What do two sets of episodes differ in: failed and solved ones, an early and a late half, two logs?

Plain differences of means, so that a person can read them ("failed episodes make 2.1 more calls"), with
standard errors that know that attempts at one task are alike. Within tasks, the difference is taken among
attempts at the same task, so that a hard task, which is long and fails, does not make length look like a
cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.stats.array_kernels import dot
from trimtab.traces.table.types import TraceTable
from trimtab.typing import Bool, Float64, Int64

ROUNDING = 1e-12
"""Differences that small against the numbers are those of floating point."""

_TINY = 1e-8  # a standard error that small against the numbers is looked at again


@dataclass(frozen=True)
class Contrast:
    """`difference` = mean of a - mean of b, in the unit of the feature (a share for yes-or-no ones), with its
    standard error from `clusters` tasks, of which `clusters_a` have episodes of a, `clusters_b` of b. The
    same `within` tasks that have both, of which there are `mixed`; nan where too few. A standard error is 0
    where nothing varies about the difference, and nan where things vary and cancel."""

    name: str
    yes_no: bool
    mean_a: float
    mean_b: float
    n_a: int
    n_b: int
    difference: float
    se: float
    clusters: int
    clusters_a: int
    clusters_b: int
    within: float = math.nan
    within_se: float = math.nan
    mixed: int = 0


def features(
    table: TraceTable, outcome: npt.NDArray[Any] | None = None, endings: bool = True
) -> Iterator[tuple[str, bool, npt.NDArray[Any]]]:
    """Name, whether it is yes or no, and values (E,), nan where unknown. `outcome` (E,) is
    `TraceTable.solved`'s, where it is not what is being contrasted. `endings`: is how an episode ended a
    feature? Not of failed and solved ones: what a limit cut, or ends in no answer, failed by definition."""
    if outcome is not None:
        yield "is solved", True, np.where(outcome >= 0, outcome, np.nan)
        yield "reward", False, table.reward
    for name, label in (
        ("calls", "tool calls"),
        ("failed", "failed calls"),
        ("repeats", "repeated identical calls"),
        ("turns", "assistant turns"),
    ):
        yield label, False, table.counts[name].astype(np.float64)
    yield "tokens", False, table.tokens
    yield "seconds", False, table.duration_s
    yield "cost", False, table.cost
    yield "is in a loop", True, (table.counts["loop_calls"] > 0) * 1.0
    yield "makes no call", True, (table.counts["calls"] == 0) * 1.0
    yield "has a failed call", True, (table.counts["failed"] > 0) * 1.0
    yield "meets a fault of a tool", True, (table.counts["tool_faults"] > 0) * 1.0
    for name, label in (("refusals", "refuses"), ("switches", "changes script")):
        if name in table.marks:
            yield label, True, (table.marks[name] > 0) * 1.0
    for i, tool in enumerate(table.tool_names):
        yield f"calls {tool}", True, table.used[:, i] * 1.0
        yield f"fails a call of {tool}", True, table.erred[:, i] * 1.0
    if endings:
        yield from _endings(table)


def _endings(table: TraceTable) -> Iterator[tuple[str, bool, npt.NDArray[Any]]]:
    yield "ends in an empty answer", True, (table.counts["empty_answers"] > 0) * 1.0
    yield "cut by a limit", True, np.where(table.truncated >= 0, table.truncated, np.nan)
    for i, stop in enumerate(table.stops):
        yield f"stops by {stop}", True, (table.stop == i) * 1.0


def contrasts(
    table: TraceTable, a: Bool, b: Bool, within: bool = True, outcome: npt.NDArray[Any] | None = None,
    endings: bool = True,
) -> list[Contrast]:  # fmt: skip
    """The contrasts of episodes `a` and `b` (E,) that can be judged, in the order of `features`. Too few on a
    side, of tasks, or with or without a yes-or-no feature: not listed. Of features that are the same in every
    episode, one."""
    min_count = bound("trace_contrast_min")
    own = np.arange(table.num_episodes) + len(table.tasks)
    _, clusters = np.unique(np.where(table.task >= 0, table.task, own), return_inverse=True)
    differences: list[Contrast] = []
    seen: set[bytes] = set()
    either = a | b
    for name, yes_no, values in features(table, outcome, endings):
        keep = either & np.isfinite(values)
        x, is_a, tasks = (values, a, clusters) if keep.all() else (values[keep], a[keep], clusters[keep])
        counts = [int(is_a.sum()), int((~is_a).sum())]
        if yes_no:
            counts += [int((x > 0).sum()), int((x == 0).sum())]
        if (
            min(counts) < min_count
            or np.count_nonzero(np.bincount(tasks)) < min_count
            or x.min() == x.max()
            or (same := blake2b(np.ascontiguousarray(x).data, digest_size=16).digest()) in seen
        ):
            continue
        seen.add(same)
        mean_a, mean_b = float(x[is_a].mean()), float(x[~is_a].mean())
        gap, se, groups = difference(x, is_a, tasks)
        if groups < min_count:
            continue
        inside = within_difference(x, is_a, tasks) if within else (math.nan, math.nan, 0)
        if inside[2] < min_count:
            inside = (math.nan, math.nan, inside[2])
        in_a, in_b = clusters_of_sides(tasks, is_a)
        differences.append(Contrast(name, yes_no, mean_a, mean_b, counts[0], counts[1], gap, se, groups, in_a,
            in_b, *inside))  # fmt: skip
    return differences


def clusters_of_sides(clusters: Int64, is_a: Bool) -> tuple[int, int]:
    """How many clusters have members in a, and how many others."""
    a, b = (int(np.count_nonzero(np.bincount(clusters[side]))) for side in (is_a, ~is_a))
    return a, b


def difference(x: Float64, is_a: Bool, clusters: Int64) -> tuple[float, float, int]:
    """Mean of a less mean of b, its cluster-robust standard error, and the number of clusters; `clusters` are
    small integers.

    The variance is G/(G-1) times the sum over clusters of the squared sum of influences, (x - mean)/n with
    its sign (Liang and Zeger 1986). With clusters of one it is Welch's, up to G/(G-1). It is 0 where x is one
    number on each side; where x varies, but in every cluster so that its influences cancel, that tells
    nothing of other tasks: nan.

    >>> gap, se, groups = difference(np.array([1.0, 3.0, 0.0, 0.0]), np.array([True, True, False, False]),
    ...     np.arange(4))
    >>> gap, round(se, 4), groups
    (2.0, 0.8165, 4)
    """
    x_a, x_b = x[is_a], x[~is_a]
    mean_a, mean_b = x_a.mean(), x_b.mean()
    influence = np.where(is_a, (x - mean_a) / x_a.size, -(x - mean_b) / x_b.size)
    sums = np.bincount(clusters, influence)
    g = int((np.bincount(clusters) > 0).sum())
    se = math.sqrt(g / (g - 1) * dot(sums, sums)) if g > 1 else math.nan
    if (size := _size(x)) * _TINY >= se:
        spread = max(float(x_a.max() - x_a.min()), float(x_b.max() - x_b.min()))
        se = _honest(se, spread, size, float(np.abs(influence).sum()))
    return float(mean_a - mean_b), se, g


def _size(x: Float64) -> float:
    return max(abs(float(x.max())), abs(float(x.min())))


def _honest(se: float, spread: float, size: float, parts: float) -> float:
    """0 where what varies, by `spread` in numbers as large as `size`, is rounding; nan where it is not, and
    the sum of `parts` is all the same."""
    if not math.isfinite(se) or spread <= ROUNDING * size:
        return se * 0.0
    return math.nan if se <= ROUNDING * parts else se


def within_difference(x: Float64, is_a: Bool, clusters: Int64) -> tuple[float, float, int]:
    """The same among attempts at one task: slope of x on a, both less their task's mean; and the number of
    tasks with both.

    >>> x, a = np.array([5.0, 4.0, 1.0, 0.0]), np.array([True, False, True, False])
    >>> within_difference(x, a, np.array([0, 0, 1, 1]))
    (1.0, 0.0, 2)
    """
    sizes = np.bincount(clusters)
    share = np.bincount(clusters, is_a) / np.maximum(sizes, 1)
    mixed = (share > 0) & (share < 1)
    z = is_a - share[clusters]
    total = dot(z, z)
    g = int(mixed.sum())
    if g < 2 or total <= 0:
        return math.nan, math.nan, g
    y = x - (np.bincount(clusters, x) / np.maximum(sizes, 1))[clusters]
    slope = dot(z, y) / total
    left = np.where(z == 0, 0.0, y - slope * z)
    scores = np.bincount(clusters, z * left)[mixed]
    se = math.sqrt(g / (g - 1) * dot(scores, scores)) / total
    if (size := _size(x)) * _TINY >= se:
        se = _honest(se, float(np.abs(left).max()), size, float(np.abs(z * left).sum()) / total)
    return slope, se, g
