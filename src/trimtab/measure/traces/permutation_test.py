"""Which failures could have come at which time, were nothing the matter? Permutations of episodes' outcomes
that keep the tasks.

The null has two parts. An attempt at a task fails by the task's own chance, whenever it is made: so the
outcomes of one task are exchangeable over its own places in time, however hard it is and in whatever order
tasks come; attempts side by side (a group of the log's, or with no other task between) stay together, for
they may share more than the task. And tasks whose attempts all lie together in time (one attempt, or one
group) have no other time to be held against: they are exchangeable with one another as whole blocks, which
supposes that they do not come in the order of their difficulty. Tasks attempted at several times never change
places.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trimtab.typing import Float64, Int64

Statistic = Callable[[Float64], float]

_PERMUTATIONS, _EXCEEDED = 499, 10
NARROWEST = 8
_TOGETHER = 4  # attempts within a fourth of all episodes lie together


def apart(tasks: Int64) -> npt.NDArray[np.bool_]:
    """(n,) is the episode one of a task whose attempts reach over a fourth of all episodes or more? `tasks`
    (n,) in order of time.

    >>> apart(np.array([0, 1, 0, 1, 2, 2, 2, 2])).tolist()
    [True, True, True, True, True, True, True, True]
    >>> apart(np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 5])).any()
    np.False_
    """
    _, task = np.unique(tasks, return_inverse=True)
    first, last = np.full(tasks.size, tasks.size), np.zeros(tasks.size, np.int64)
    np.minimum.at(first, task, np.arange(tasks.size))
    np.maximum.at(last, task, np.arange(tasks.size))
    far: npt.NDArray[np.bool_] = (last - first)[task] * _TOGETHER >= tasks.size
    return far


def without_tasks(failed: Float64, tasks: Int64) -> Float64:
    """(n,) failures less their task's share, where it is attempted at several times, else less the share of
    all such tasks.

    What is taken off stays in its place under every permutation, so that hard tasks do not hide a burst among
    easy ones.
    """
    _, task = np.unique(np.where(apart(tasks), tasks, -1), return_inverse=True)
    share: Float64 = failed - (np.bincount(task, failed) / np.bincount(task))[task]
    return share


def worst_window(values: Float64, narrowest: int = NARROWEST) -> tuple[float, int, int]:
    """The window of `narrowest` (8), twice as many, ... episodes, up to half of all, with the most failures
    beyond its share: deviates, first place, end.

    >>> z, first, end = worst_window(np.array([0.0] * 40 + [1.0] * 8 + [0.0] * 40))
    >>> round(z, 1), first, end
    (9.4, 40, 48)
    """
    n, mean = values.size, float(values.mean())
    total, spread = np.r_[0.0, np.cumsum(values)], float(((values - mean) ** 2).mean())
    best, width = (-math.inf, 0, 0), narrowest
    while width <= n // 2 and spread > 1e-12:
        sums = total[width:] - total[:-width]
        at = int(sums.argmax())
        z = float((sums[at] - width * mean) / math.sqrt(width * spread * (1 - width / n)))
        best = max(best, (z, at, at + width))
        width *= 2
    return best


def permutation_p(
    values: Float64, tasks: Int64, statistic: Statistic, rng: np.random.Generator,
    groups: Int64 | None = None, strata: Int64 | None = None,
) -> float:  # fmt: skip
    """How often the statistic is as large or larger when values change places as the null allows; stopped
    early where it cannot become small (Besag and Clifford 1991). `values`, `tasks`, `groups`,
    `strata` (n,) in order of time; a group of -1 is none. Nothing changes places with another stratum.

    What tasks, groups and strata are numbered by does not matter.
    """
    block, kind = _blocks(tasks, groups) if strata is None else _stratified_blocks(tasks, groups, strata)
    layout, sizes = np.argsort(block, kind="stable"), np.bincount(block)
    starts, index = np.cumsum(sizes) - sizes, np.arange(values.size)
    alike = kind[0] == kind[-1]
    laid, observed, exceeded, again = values[layout], statistic(values), 0, np.empty_like(values)
    for draw in range(1, _PERMUTATIONS + 1):
        order = rng.permutation(kind.size) if alike else np.argsort(kind + rng.random(kind.size))
        lengths = sizes[order]
        again[layout] = laid[index + np.repeat(starts[order] - np.cumsum(lengths) + lengths, lengths)]
        exceeded += statistic(again) >= observed - 1e-9
        if exceeded == _EXCEEDED:
            return _EXCEEDED / draw
    return (exceeded + 1) / (_PERMUTATIONS + 1)


def strata_of(strata: Int64) -> list[Int64]:
    """The indices of each stratum (n,), in order of time; strata in the order of their first."""
    code = _codes(strata)
    return [np.flatnonzero(code == one) for one in range(int(code.max(initial=-1)) + 1)]


def _stratified_blocks(tasks: Int64, groups: Int64 | None, strata: Int64) -> tuple[Int64, Int64]:
    """`_blocks` of each stratum as if it were alone; blocks of two strata are of different kinds."""
    block, kinds, num_blocks, num_kinds = np.empty(tasks.size, np.int64), list[Int64](), 0, 0
    for part in strata_of(strata):
        number, kind = _blocks(tasks[part], None if groups is None else groups[part])
        block[part] = number + num_blocks
        kinds.append(kind + num_kinds)
        num_blocks, num_kinds = num_blocks + kind.size, num_kinds + int(kind.max()) + 1
    return block, np.concatenate(kinds)


def _blocks(tasks: Int64, groups: Int64 | None) -> tuple[Int64, Int64]:
    """(n,) number of the block that each episode moves with, and (B,) the kind of each block, which rises:
    those of one kind change places.

    A task at several times: its groups of one size, and where a group is none or lies far apart, its runs.
    Others: tasks with as many attempts, so that no block is torn by those between them; or all, where no task
    is at several times.
    """
    n, far = tasks.size, apart(tasks)
    own = np.cumsum(np.r_[0, tasks[1:] != tasks[:-1]]) + n
    pairs = own if groups is None else np.where(groups < 0, own, _codes(np.column_stack([tasks, groups])))
    unit = _codes(np.where(far, np.where(apart(pairs), own, pairs), _codes(tasks) + 2 * n))
    _, first, sizes = np.unique(unit, return_index=True, return_counts=True)
    alone = np.where(far.any(), sizes, 0)
    kind = _codes(
        np.column_stack([np.where(far[first], _codes(tasks)[first], -1), np.where(far[first], sizes, alone)])
    )
    order = np.lexsort((first, kind))
    number = np.empty(first.size, np.int64)
    number[order] = np.arange(first.size)
    return number[unit], kind[order]


def _codes(values: Int64) -> Int64:
    """(n,) numbers from 0, equal where values (n,) or rows (n, k) are; in the order of their coming."""
    _, first, code = np.unique(values, axis=0, return_index=True, return_inverse=True)
    rank: Int64 = np.argsort(np.argsort(first))[code.ravel()]
    return rank
