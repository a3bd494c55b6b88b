"""Which number columns of TRL's completions are rewards?

`log_extra` of a reward function writes columns that look just like them.

The advantage tells: within a group it rises and stands still with the reward. TRL writes the rewards before
the extra columns, so the rewards are the run of first columns whose sum puts the most pairs of a group in the
order of their advantages; of several such runs the shortest, as a number that is the same in all of a group
changes no comparison, unless what follows is called a reward. Where no plain sum does, weights may
(`reward_weights`, which TRL does not log): the shortest run for which the advantages tell some
(`traces.trl_weights`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from trimtab.traces.core.coerce import as_number
from trimtab.typing import Float64, Json

if TYPE_CHECKING:
    from trimtab.traces.core.read_report import ReadReport


MAX_ROWS = 4_000
"""Rows that are checked."""

UNCONFIRMED = "advantages of TRL in the order of no sum of rewards"
"""How the note begins that says so."""

_NOT_REWARDS = ("step", "advantage", "advantages", "__index_level_0__")
_ALIKE = 1e-6  # of the largest: TRL computes in 32 bits
_ENOUGH = 0.99  # of the pairs
_EACH = 5  # answers a weight, from which it is fitted: any weights fit a few
_MOST = 64  # answers of a group that are compared, each with each
_DIGITS = 3
_TINY = 1e-9
Row = tuple[dict[str, float], float]


class RewardColumns(NamedTuple):
    """`names`: of the rewards; `others`: of what is none; `confirmed`: does the advantage confirm them?

    `unknown` where no group has two. `weights`: one a name, the largest 1; none where the plain sum is meant.
    """

    names: tuple[str, ...]
    others: tuple[str, ...]
    confirmed: Literal["yes", "no", "unknown"]
    weights: tuple[float, ...] = ()

    def reward(self, parts: Mapping[str, float]) -> float:
        """The sum of the parts, by their weights."""
        if not self.weights:
            return sum(parts.values())
        weights = dict(zip(self.names, self.weights, strict=True))
        return sum(weights[name] * value for name, value in parts.items())

    def tell(self, report: ReadReport) -> None:
        """Note what is not read as a reward, and what is without proof; the same once."""
        names = ", ".join(self.names)
        pairs = zip(self.names, self.weights, strict=False)
        weighted = ", ".join(f"{weight:g} {name}" for name, weight in pairs)
        for note, holds in (
            (f"columns of TRL that the advantages do not follow, no rewards: {', '.join(self.others)}",
            self.others),
            (f"rewards of TRL added up with weights that the advantages tell, up to a scale: {weighted}",
            self.weights),
            (f"{UNCONFIRMED}; read as rewards: {names}", self.confirmed == "no"),
            (f"no group of TRL tells which columns are rewards; read as rewards: {names}",
            self.confirmed == "unknown" and len(self.names) > 1),
        ):  # fmt: skip
            if holds:
                report.note_once(note)


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
    """Of rows with `step`, `prompt`, `advantage` and numbers, in TRL's order.

    All, where no group has two advantages. `no`: weights, a scale for each function, or a filter make the
    advantages follow no sum.

    >>> rows = [{"prompt": "q", "right": r, "length": n, "advantage": a} for r, n, a in ((0.0, 300, -1.0),
    ...     (1.0, 100, 1.0))]
    >>> reward_columns(rows)
    RewardColumns(names=('right',), others=('length',), confirmed='yes', weights=())
    """
    names = tuple(dict.fromkeys(name for row in rows for name in numbers_of(row)))
    groups = [group for group in _groups(rows) if len(group) > 1]
    if not groups or not names:
        return RewardColumns(names, (), "unknown")
    shares = [round(_share(groups, names[: i + 1]), 9) for i in range(len(names))]
    best = shares.index(max(shares)) + 1
    if max(shares) < _ENOUGH:
        num_free = sum(len(group) - 2 for group in groups)  # a group's mean and scale are free
        for size in range(2, min(len(names), num_free // _EACH) + 1):
            weights = fitted([_arrays(group, names[:size]) for group in groups], size)
            if weights is not None and _share(groups, names[:size], weights) >= _ENOUGH:
                return RewardColumns(names[:size], names[size:], "yes", weights)
    while best < len(names) and shares[best] == shares[best - 1] and "reward" in names[best].lower():
        best += 1
    return RewardColumns(names[:best], names[best:], "yes" if shares[best - 1] >= _ENOUGH else "no")


def columns_of(files: Iterable[str], read: Callable[[str], Iterable[Json]]) -> RewardColumns:
    """One answer for a run that is in many files: of the first rows of each."""
    paths = list(files)
    each = max(64, MAX_ROWS // max(1, len(paths)))
    rows = (row for path in paths for row in itertools.islice(read(path), each))
    return reward_columns(list(itertools.islice(rows, MAX_ROWS)))


def _groups(rows: Iterable[Json]) -> list[list[Row]]:
    """Answers to one prompt that stand together; a prompt that comes twice running is cut by the size of the
    smallest group."""
    runs = [
        list(some)
        for _, some in itertools.groupby(rows, key=lambda row: (str(row.get("step")), str(row.get("prompt"))))
    ]
    min_size = min((len(run) for run in runs if len(run) > 1), default=1)
    groups = []
    for run in runs:
        size = min_size if len(run) % min_size == 0 else len(run)
        groups += [run[i : i + size] for i in range(0, len(run), size)]
    return [
        [
            (numbers_of(row), advantage)
            for row in run[:_MOST]
            if (advantage := as_number(row.get("advantage"))) is not None and math.isfinite(advantage)
        ]
        for run in groups
    ]


def _arrays(group: list[Row], names: Sequence[str]) -> tuple[Any, Any]:
    """Rewards (n, k), 0 where a function gave none, as TRL's sum has it, and advantages (n,)."""
    rewards = np.array([[row.get(name, math.nan) for name in names] for row, _ in group], float)
    return np.where(np.isnan(rewards), 0.0, rewards), np.array([advantage for _, advantage in group], float)


def _share(groups: list[list[Row]], names: Sequence[str], weights: Sequence[float] = ()) -> float:
    """Of pairs of a group, how many have sums and advantages in the same order, or both alike."""
    by_name = dict(zip(names, weights or [1.0] * len(names), strict=True))
    hits = pairs = 0
    for group in groups:
        sums = [
            sum(weight * v for name, weight in by_name.items() if not math.isnan(v := row.get(name,
            math.nan))) for row, _ in group
        ]  # fmt: skip
        advantages = [advantage for _, advantage in group]
        if all(map(math.isfinite, sums)):
            for (low, before), (high, after) in itertools.combinations(zip(sums, advantages, strict=True), 2):
                pairs += 1
                hits += _sign(high - low, sums) == _sign(after - before, advantages)
    return hits / pairs if pairs else 0.0


def _sign(gap: float, among: list[float]) -> int:
    slack = _ALIKE * max(1e-6, max(map(abs, among)))
    return (gap > slack) - (gap < -slack)


def fitted(groups: Sequence[tuple[Float64, Float64]], num_rewards: int) -> tuple[float, ...] | None:
    """Weights (k,), the largest of size 1, of groups of rewards (n, k) and advantages (n,); None where they
    tell none.

    >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> fitted([(x, 5.0 * (x @ [0.1, 1.0]))], 2)
    (0.1, 1.0)
    """
    across, inside = (np.zeros((num_rewards, num_rewards)) for _ in range(2))
    turn = np.zeros(num_rewards)
    for rewards, advantages in groups:
        x, a = rewards - rewards.mean(0), advantages - advantages.mean()
        size = float(a @ a)
        if not np.isfinite(x).all() or size <= _TINY or not x.any():
            continue
        on = a @ x
        across += x.T @ x - np.outer(on, on) / size
        inside += x.T @ x
        turn += on
    moves = np.sqrt(np.diag(inside))
    used = np.flatnonzero(moves > _TINY)
    if not used.size:
        return None
    scale = np.outer(moves[used], moves[used])
    values, vectors = np.linalg.eigh(inside[np.ix_(used, used)] / scale)
    usable = values > 1e-6  # rewards that always move together have no weight each
    root = vectors[:, usable] / np.sqrt(values[usable])
    _, best = np.linalg.eigh(root.T @ (across[np.ix_(used, used)] / scale) @ root)
    weights = np.zeros(num_rewards)
    weights[used] = root @ best[:, 0] / moves[used]
    weights *= np.sign(weights @ turn) or 1.0
    largest = np.abs(weights).max()
    if largest <= _TINY:
        return None
    return tuple(float(f"{w / largest:.{_DIGITS}g}") if abs(w) > 1e-3 * largest else 0.0 for w in weights)
