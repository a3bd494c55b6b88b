"""Rewards by group: what the rollouts of one prompt add up to before any spread is taken.

A group may be split over micro-batches and ranks, so its sums are kept by (step, group) until they are read.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.typing import Int64

MAX_GROUPS = 4_096
"""Groups kept open; beyond it the oldest are closed, and what comes of them later counts as a group of its
own."""

_ROW = struct.Struct("<4q4d")
_HEAD = struct.Struct("<5qd")


class GroupTotals(NamedTuple):
    """Over groups of two or more rewards: their number, those of equal rewards, all and none solved, sum of
    deviations.

    `closed_early` counts groups that left the table before they were read.
    """

    groups: int = 0
    zero: int = 0
    all_solved: int = 0
    none_solved: int = 0
    closed_early: int = 0
    sum_std: float = 0.0


class Row(NamedTuple):
    """Sums of one group: rewards, solved ones, sum, sum of squares, largest, largest of the negative."""

    num: int
    solved: int
    total: float
    square: float
    top: float
    bottom: float

    def plus(self, other: Row) -> Row:
        """The sums of both."""
        return Row(
            self.num + other.num,
            self.solved + other.solved,
            self.total + other.total,
            self.square + other.square,
            max(self.top, other.top),
            max(self.bottom, other.bottom),
        )


@dataclass
class GroupSums:
    """Per (step, group): rewards, solved ones, sum, sum of squares, max, max of the negative. Obeys the merge
    laws.

    The deviation is the sample's (n - 1), as trainers log it. Groups of one reward have none and are not
    counted.

    >>> sums = GroupSums()
    >>> sums.update(0, np.array([7, 7, 8, 8]), np.array([0.0, 1.0, 1.0, 1.0]), solved_at=1.0)
    >>> totals = sums.totals()
    >>> totals.groups, totals.zero, totals.all_solved, round(totals.sum_std, 4)
    (2, 1, 1, 0.7071)
    """

    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    closed: GroupTotals = field(default_factory=GroupTotals)

    def update(
        self,
        step: npt.ArrayLike,
        group: npt.NDArray[np.int64],
        reward: npt.NDArray[np.float64],
        solved_at: float | None,
    ) -> None:
        """Add finite rewards (B,) of groups (B,) of a step, or of steps (B,); solved is a reward of at least
        `solved_at`."""
        steps, ids, where = step_groups(np.broadcast_to(step, group.shape), group)
        count = np.bincount(where, minlength=ids.size)
        passed = reward >= (math.inf if solved_at is None else solved_at)
        solved = np.bincount(where, weights=passed, minlength=ids.size).astype(np.int64)
        total = np.bincount(where, weights=reward, minlength=ids.size)
        square = np.bincount(where, weights=reward**2, minlength=ids.size)
        top, bottom = np.full(ids.size, -np.inf), np.full(ids.size, -np.inf)
        np.maximum.at(top, where, reward)
        np.maximum.at(bottom, where, -reward)
        columns = (a.tolist() for a in (steps, ids, count, solved, total, square, top, bottom))
        for at, key, *row in zip(*columns, strict=True):
            self._add((at, key), Row(*row))
        self._bound()

    def totals(self) -> GroupTotals:
        """What all groups come to, the closed ones included."""
        return _plus(self.closed, *map(_judge, self.rows.values()))

    def copy(self) -> GroupSums:
        """The same sums, sharing nothing."""
        return GroupSums(dict(self.rows), self.closed)

    def absorb(self, other: GroupSums) -> None:
        """Merge in place; the other stays as it is."""
        for key, row in other.rows.items():
            self._add(key, row)
        self.closed = _plus(self.closed, other.closed)
        self._bound()

    def to_bytes(self) -> bytes:
        """Compact bytes; `from_bytes` reads them."""
        rows = (_ROW.pack(*key, *row) for key, row in sorted(self.rows.items()))
        return _HEAD.pack(*self.closed) + b"".join(rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> GroupSums:
        """Inverse of `to_bytes`; struct.error on other bytes."""
        out = cls(closed=GroupTotals(*_HEAD.unpack_from(data)))
        for step, group, *row in _ROW.iter_unpack(data[_HEAD.size :]):
            out.rows[step, group] = Row(*row)
        return out

    def _add(self, key: tuple[int, int], row: Row) -> None:
        known = self.rows.get(key)
        self.rows[key] = row if known is None else known.plus(row)

    def _bound(self) -> None:
        if len(self.rows) <= MAX_GROUPS:
            return
        for key in sorted(self.rows)[: len(self.rows) - MAX_GROUPS]:
            self.closed = _plus(self.closed, _judge(self.rows.pop(key))._replace(closed_early=1))


def step_groups(step: Int64, group: Int64) -> tuple[Int64, Int64, Int64]:
    """Step and group (G,) of the pairs that occur in step (B,), group (B,), and the place of each row's pair
    (B,).

    >>> [a.tolist() for a in step_groups(np.array([1, 1, 2]), np.array([5, 5, 5]))]
    [[1, 2], [5, 5], [0, 0, 1]]
    """
    steps, at = np.unique(step, return_inverse=True)
    ids, of = np.unique(group, return_inverse=True)
    pairs, where = np.unique(at * max(1, ids.size) + of, return_inverse=True)
    return steps[pairs // max(1, ids.size)], ids[pairs % max(1, ids.size)], where


def _judge(row: Row) -> GroupTotals:
    if row.num < 2:
        return GroupTotals()
    equal = row.top == -row.bottom
    spread = 0.0 if equal else max(0.0, row.square - row.total**2 / row.num) / (row.num - 1)
    return GroupTotals(1, int(equal), int(row.solved == row.num), int(row.solved == 0), 0, math.sqrt(spread))


def _plus(*totals: GroupTotals) -> GroupTotals:
    *counts, std = zip(*totals, strict=True)
    groups, zero, solved, unsolved, early = (sum(column) for column in counts)
    return GroupTotals(groups, zero, solved, unsolved, early, math.fsum(std))
