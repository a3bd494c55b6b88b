"""Which number columns of TRL's completions are rewards? `log_extra` of a reward function writes columns that look just like them.

The advantage tells: within a group it rises with the reward. TRL writes the rewards before the extra columns, so the rewards are the
run of first columns whose sum puts the most groups in the order of their advantages, the longest of such runs.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from trimtab.traces.values import as_number

__all__ = ["RewardColumns", "numbers_of", "reward_columns"]

Json = Mapping[str, Any]
_NOT_REWARDS = ("step", "advantage", "advantages", "__index_level_0__")
_ALIKE = 1e-6  # of the largest: TRL computes in 32 bits
_ENOUGH = 0.95  # of the groups; a prompt that comes twice in a step makes one of two
Row = tuple[dict[str, float], float]


class RewardColumns(NamedTuple):
    """`names`: of the rewards; `others`: of what is none; `told`: does the advantage confirm them? `unknown` where no group says."""

    names: tuple[str, ...]
    others: tuple[str, ...]
    told: Literal["yes", "no", "unknown"]


def numbers_of(row: Json) -> dict[str, float]:
    """The numbers of a row that may be rewards, in its order."""
    return {
        name: number
        for name, value in row.items()
        if name not in _NOT_REWARDS
        and not isinstance(value, (bool, str))
        and (number := as_number(value)) is not None
    }


def reward_columns(rows: Sequence[Json]) -> RewardColumns:
    """Of rows with `step`, `prompt`, `advantage` and numbers. All, where no group has two different advantages, or none is in the order of a sum
    (weights, a scale for each function).

    >>> rows = [{"prompt": "q", "right": r, "length": n, "advantage": a} for r, n, a in ((0.0, 300, -1.0), (1.0, 100, 1.0))]
    >>> reward_columns(rows)
    RewardColumns(names=('right',), others=('length',), told='yes')
    """
    names = tuple(dict.fromkeys(name for row in rows for name in numbers_of(row)))
    groups = [group for group in _groups(rows) if len({a for _, a in group}) > 1]
    if not groups or not names:
        return RewardColumns(names, (), "unknown")
    hits = [sum(_in_order(group, names[: i + 1]) for group in groups) for i in range(len(names))]
    best = max(range(len(names)), key=lambda i: (hits[i], i)) + 1
    told: Literal["yes", "no"] = "yes" if hits[best - 1] >= _ENOUGH * len(groups) else "no"
    return RewardColumns(names[:best], names[best:], told)


def _groups(rows: Iterable[Json]) -> list[list[Row]]:
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        advantage = as_number(row.get("advantage"))
        if advantage is not None and math.isfinite(advantage):
            found[str(row.get("step")), str(row.get("prompt"))].append((numbers_of(row), advantage))
    return list(found.values())


def _in_order(group: list[Row], names: Sequence[str]) -> bool:
    """Does the sum rise where the advantage does, and stand still where it does?"""
    summed = [
        (sum(v for name in names if not math.isnan(v := row.get(name, math.nan))), a) for row, a in group
    ]
    if not all(math.isfinite(total) for total, _ in summed):
        return True  # says nothing
    summed.sort()
    slack = [_ALIKE * max(1e-6, *(abs(pair[i]) for pair in summed)) for i in (0, 1)]
    for (low, before), (high, after) in itertools.pairwise(summed):
        rises, follows = high - low > slack[0], after - before > slack[1]
        if rises != follows or before - after > slack[1]:
            return False
    return True
