"""In which order were the episodes begun, and in which did the policies follow one another?"""

from __future__ import annotations

import math
import re

import numpy as np

from trimtab.traces.table.types import TraceTable
from trimtab.typing import Int64


def in_order(table: TraceTable) -> tuple[Int64, str]:
    """(E,) indices of the episodes as they began, and by what: the time where every episode has one, else the
    log's order; the numbers of policies or training steps, where every episode has one, go before that, for
    files of steps are read in the order of their names."""
    if table.num_episodes and np.isfinite(table.time).all():
        return np.argsort(table.time, kind="stable"), "time"
    if (table.version >= 0).all() and (ranks := _numbers(table.versions)):
        return np.argsort(_ranks(ranks)[table.version], kind="stable"), "order"
    return np.arange(table.num_episodes), "order"


def version_ranks(table: TraceTable) -> Int64:
    """(V,) rank of each of `table.versions` in their order: by number where all are numbers or differ in
    their numbers only (step-2 comes before step-10), else by the median time of their episodes where every
    episode has one, else as they came in the log."""
    numbers = _numbers(table.versions)
    if numbers is not None:
        return _ranks(numbers)
    _, by = in_order(table)
    if by == "order":
        return np.arange(len(table.versions))
    middle = [
        float(np.median(table.time[mine])) if (mine := table.version == version).any() else math.inf
        for version in range(len(table.versions))
    ]
    return np.argsort(np.argsort(middle, kind="stable"))


def _ranks(numbers: list[tuple[float, ...]]) -> Int64:
    rank = {number: at for at, number in enumerate(sorted(set(numbers)))}
    return np.array([rank[number] for number in numbers], np.int64)


def _numbers(versions: list[str]) -> list[tuple[float, ...]] | None:
    """What numbers each holds; None where they differ in more than that."""
    try:
        plain: list[tuple[float, ...]] = [(float(version),) for version in versions]
    except ValueError:
        parts = [re.split(r"(\d+)", version) for version in versions]
        if len({(len(part), *part[::2]) for part in parts}) > 1:
            return None
        return [tuple(float(digits) for digits in part[1::2]) for part in parts]
    return None if any(math.isnan(number[0]) for number in plain) else plain
