"""Composite readings: the sum of several readings that one trouble moves together.

Each member is taken on its rule's scale and signed so that up is bad. It is standardised by median and robust
deviation of its first values, which stay fixed. The composite value is the sum over sqrt(k), so its scatter
is about one for independent members, whatever k is. k movements of d deviations each make one of sqrt(k) d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.typing import Float64, Int64

BASE = 40  # values that set a member's scale
_LIMIT = 30.0  # deviations a member counts for at most: one reading alone does not fire
Key = tuple[str, str]


@dataclass(frozen=True)
class Member:
    """A reading that moves up (+1) or down (-1) in this trouble.

    `log`: on a log scale, `floor` added first.
    """

    key: Key
    sign: int
    log: bool = False
    floor: float = 0.0

    def value(self, raw: float) -> float:
        """Signed and scaled; nan where it cannot be."""
        if self.log:
            raised = raw + self.floor
            raw = math.log(raised) if raised > 0 else math.nan
        return self.sign * raw

    def values(self, raw: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same for an array."""
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                raised = raw + self.floor
                raw = np.where(raised > 0, np.log(raised), math.nan)
        return np.asarray(self.sign * raw)


def _up(name: str, log: bool = False) -> Member:
    return Member((f"aggregate/{name}", "all"), 1, log)


def _share(name: str, floor: str = "share_floor") -> Member:
    """A share that may be 0, which rises."""
    return Member((f"aggregate/{name}", "all"), 1, True, bound(floor))


def _down(name: str, log: bool = False) -> Member:
    return Member((f"aggregate/{name}", "all"), -1, log)


FAMILIES: dict[str, tuple[Member, ...]] = {
    "outcome": (_down("reward"), _up("grad_norm", True)),
    "vanishing": (_down("grad_norm", True), _down("advantage_std")),
    "text": (_up("length"), _share("truncated_frac"), _up("reward_length_corr"), _share("repetition_frac")),
    "entropy": (_down("entropy"), _down("reward_std"), _up("zero_std_frac")),
}  # fmt: skip
"""Family -> its members. Each is the reading `joint/<family>` of the slice `all`."""


@dataclass
class CompositeReading:
    """Composite value of one family.

    Members without a value in the first 40 do not count. A member that misses later makes the step's value
    absent. A member is clipped to 30 deviations; `num_clipped` counts how often.
    """

    members: tuple[Member, ...]
    first: dict[Key, list[float]] = field(default_factory=dict)
    scale: dict[Key, tuple[float, float]] | None = None
    num_clipped: int = 0

    def update(self, values: Mapping[Key, float]) -> float:
        """Return the value of one step's readings; nan while scales are learnt or a member is missing."""
        present = {m.key: m.value(values[m.key]) for m in self.members if m.key in values}
        if not present:
            return math.nan
        if self.scale is None:
            for key, value in present.items():
                if math.isfinite(value):
                    self.first.setdefault(key, []).append(value)
            if max(map(len, self.first.values()), default=0) >= BASE:
                self.scale = _scales(self.first)
            return math.nan
        if len(self.scale) < 2:
            return math.nan
        z_scores = [
            (present.get(key, math.nan) - middle) / spread for key, (middle, spread) in self.scale.items()
        ]
        if not all(math.isfinite(present.get(key, math.nan)) for key in self.scale):
            return math.nan
        self.num_clipped += sum(abs(one) > _LIMIT for one in z_scores)
        return sum(min(max(one, -_LIMIT), _LIMIT) for one in z_scores) / math.sqrt(len(self.scale))

    def scan(self, series: Mapping[Key, tuple[Any, Any]]) -> tuple[Int64, Float64]:
        """Run `update` over whole series; return the steps with a value, and the values.

        Nothing may have been seen.
        """
        mine = [member for member in self.members if member.key in series]
        nothing = np.zeros(0, np.int64), np.zeros(0)
        if len(mine) < 2:
            return nothing
        steps, columns = _aligned([series[member.key] for member in mine])
        columns = np.array([member.values(column) for member, column in zip(mine, columns, strict=True)])
        there = np.isfinite(columns)
        seen = np.cumsum(there, axis=1)
        row = int(np.argmax((seen >= BASE).any(axis=0))) if (seen[:, -1:] >= BASE).any() else steps.size
        first = {i: column[: row + 1][there[i, : row + 1]] for i, column in enumerate(columns)}
        started = sorted((i for i in first if first[i].size), key=lambda i: (int(np.argmax(there[i])), i))
        self.first = {mine[i].key: first[i].tolist() for i in started}
        if row == steps.size:
            return nothing
        self.scale = _scales(self.first)
        if len(self.scale) < 2:
            return nothing
        at = {member.key: i for i, member in enumerate(mine)}
        complete = row + 1 + np.flatnonzero(there[[at[key] for key in self.scale], row + 1 :].all(axis=0))
        total = np.zeros(complete.size)
        for key, (middle, spread) in self.scale.items():
            z_scores = (columns[at[key]][complete] - middle) / spread
            self.num_clipped += int(np.count_nonzero(np.abs(z_scores) > _LIMIT))
            total += np.minimum(np.maximum(z_scores, -_LIMIT), _LIMIT)
        return steps[complete], total / math.sqrt(len(self.scale))


def _aligned(series: Sequence[tuple[Any, Any]]) -> tuple[Int64, Float64]:
    """All steps of the series, and each series' values there, NaN where it has none: (T,), (K, T)."""
    arrays = [(np.asarray(steps, np.int64), np.asarray(values, np.float64)) for steps, values in series]
    shared = arrays[0][0]
    if all(np.array_equal(steps, shared) for steps, _ in arrays):
        return shared, np.array([values for _, values in arrays])
    union = np.unique(np.concatenate([steps for steps, _ in arrays]))
    columns = np.full((len(arrays), union.size), math.nan)
    for column, (steps, values) in zip(columns, arrays, strict=True):
        column[np.searchsorted(union, steps)] = values
    return union, columns


def _scales(first: Mapping[Key, list[float]]) -> dict[Key, tuple[float, float]]:
    """Return median and robust deviation of each member with at least 40 values and some scatter."""
    scales: dict[Key, tuple[float, float]] = {}
    for key, values in first.items():
        middle = median(values)
        spread = 1.4826 * median([abs(v - middle) for v in values])
        if len(values) >= BASE and spread > 0:
            scales[key] = (middle, spread)
    return scales
