"""What every reader of a format hands over: rows as they were written, and what it had to leave out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import MetricLogError
from trimtab.metric_logs.formats.column_blocks import Block, column_of, rows_of

_MAX_STEP = 2**53
STEP_KEYS = (
    "step", "global_step", "train/global_step", "trainer/global_step", "training/global_step", "training_step", "train_step",  # noqa: E501
    "rollout/step", "train/step", "progress/batch", "iteration", "iter", "update", "_step", "Step",
)  # fmt: skip
"""Names of a step column, the better first: W&B's `_step` counts calls of `log`, not steps."""

_SKIP = frozenset({
    *STEP_KEYS, "epoch", "train/epoch", "eval/step", "time", "timestamp", "wall_time", "_timestamp", "_runtime", "rank", "session",  # noqa: E501
})  # fmt: skip
"""Bookkeeping keys, not metrics: neither mapped nor listed as unmapped."""

_NONE = np.zeros(0)
_WRAPPERS = frozenset({"data", "metrics", "scalars", "values", "logs", "log"})


@dataclass
class RawLog:
    """`rows`: flat, theirs -> whatever stood there; a key that was not written is absent. `excluded`: reason
    -> count.

    `blocks` hold the rows instead where all their values are plain numbers and the reader chose so; `unpack`
    makes rows of them. `null_is_nothing`: the format has no other way to leave a value out, so a null is
    never a NaN. `files`: those read of a folder, where it held several; `other_runs`: names of those not
    read.
    """

    format: str
    rows: list[dict[str, Any]]
    excluded: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    null_is_nothing: bool = False
    files: list[Path] = field(default_factory=list)
    other_runs: list[str] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """How many rows there are, in either form."""
        return len(self.rows) + sum(block.index.size for block in self.blocks)

    def unpack(self) -> None:
        """Every row as a dict."""
        if self.blocks:
            self.rows, self.blocks = rows_of(self.blocks), []

    def there(self, key: str) -> int:
        """How many rows have a value under this key that is not null."""
        in_blocks = sum(block.index.size for block in self.blocks if key in block.keys)
        return in_blocks + sum(row.get(key) is not None for row in self.rows)

    def values(self, key: str) -> list[Any]:
        """Each row's value under this key; None where it has none."""
        if not self.blocks:
            return [row.get(key) for row in self.rows]
        column: list[Any] = [None] * self.num_rows
        index, values = column_of(self.blocks, key) or (_NONE, _NONE)
        for i, value in zip(index.tolist(), values.tolist(), strict=True):
            column[i] = value
        return column

    def keys(self) -> list[str]:
        """Every key of the log, in order of appearance."""
        seen: dict[str, None] = {}
        for block in self.blocks:
            seen.update(dict.fromkeys(block.keys))
        for row in self.rows:
            if not row.keys() <= seen.keys():
                seen.update(dict.fromkeys(row))
        return list(seen)

    def metric_keys(self, keys: Iterable[str] | None = None) -> list[str]:
        """Every key of the log (`keys`, where they are known) that is not bookkeeping, in order of
        appearance."""
        return [key for key in (self.keys() if keys is None else keys) if key not in _SKIP]

    def is_table(self) -> bool:
        """Does every row hold every column, as rows of a table do?"""
        columns = self.rows[0].keys() if self.rows else set()
        return all(row.keys() == columns for row in self.rows)


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested row as a flat one: `{"data": ...}` and the like vanish, other levels join by `/`.

    >>> flat({"step": 3, "data": {"actor": {"lr": 0.1}}})
    {'step': 3, 'actor/lr': 0.1}
    """
    if not prefix and dict not in set(map(type, row.values())):
        return dict(row)
    flattened: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            inside = prefix if key in _WRAPPERS and not prefix else f"{prefix}{key}/"
            for name, item in flat(value, inside).items():
                flattened.setdefault(name, item)
        else:
            flattened[prefix + key] = value
    return flattened


def steps_of(log: RawLog, source: str, keys: Iterable[str] | None = None) -> list[int | None]:
    """Each row's step; None where it has none. `keys`: those of the log, where they are known. The step
    column is the one most rows have, the better name on a tie; one that stands still only where none moves.

    Raises MetricLogError when no row has a step under any known name.
    """
    there = set(log.keys() if keys is None else keys)
    if {"train/step", "rollout/step"} <= there:
        return _two_counters(log)
    counts = {key: log.there(key) for key in STEP_KEYS if key in there}
    ranked = sorted(counts, key=lambda key: -counts[key])
    best = next((key for key in ranked if counts[key] and _moves(log.values(key))), next(iter(ranked), ""))
    if not counts.get(best):
        if _is_row_a_step(log):
            log.notes.append("no row has a step: steps are the numbers of the rows, 1 the first")
            return list(range(1, log.num_rows + 1))
        shown = ", ".join(log.metric_keys()[:6]) or "none"
        runs = ", and its rows are summaries of runs, one a run" if _is_summary(log) else ""
        raise MetricLogError(
            f"{source}: no row has a step{runs}; one of {', '.join(STEP_KEYS[:6])} is needed "
            f"(keys there: {shown})"
        )
    if best == "_step":
        log.notes.append(
            "steps are W&B's _step, which counts calls of log and may differ from the trainer's steps"
        )
    values = log.values(best)
    steps = [_whole(value) for value in values]
    bad = [value for step, value in zip(steps, values, strict=True) if step is None]
    wrong = [repr(value)[:24] for value in bad if value is not None]
    if len(bad) > len(wrong):
        log.excluded["rows without a step"] += len(bad) - len(wrong)
    if wrong:
        shown = ", ".join(list(dict.fromkeys(wrong))[:3])
        log.excluded[f"rows whose step is not a whole number up to 2**53 ({shown})"] += len(wrong)
    return steps


def _two_counters(log: RawLog) -> list[int | None]:
    """Steps of a log whose rows count updates (`train/step`) or rollouts (`rollout/step`, `eval/step`), as
    slime's do. A rollout stands at the first of its updates.
    """
    updates = [_whole(value) for value in log.values("train/step")]
    pairs = zip(log.values("rollout/step"), log.values("eval/step"), strict=True)
    rollouts = [_whole(one if other is None else other) for other, one in pairs]
    last_update = max((step for step in updates if step is not None), default=0)
    last_rollout = max((step for step in rollouts if step is not None), default=0)
    num = max(1, round((last_update + 1) / (last_rollout + 1)))
    if num > 1:
        log.notes.append(
            f"{num} updates a rollout: what is logged once a rollout stands at the first of them"
        )
    steps = [
        step if step is not None else None if rollout is None else rollout * num
        for step, rollout in zip(updates, rollouts, strict=True)
    ]
    if None in steps:
        log.excluded["rows without a step"] += steps.count(None)
    return steps


def _moves(values: list[Any]) -> bool:
    """Has a column two values? W&B copies of a counter that nobody advances stand at 0 throughout."""
    known = [value for value in values if value is not None]
    return any(value != known[0] for value in known)


_MIN_ROWS = 10
"""Rows of a table without a step that are taken for steps; fewer may be anything."""

_SUMMARY = re.compile(
    r"(final|best|last|overall)[_/]|run(_?(name|id))?$|(model|config|experiment|seed)\b", re.I
)
"""Keys of tables that have a row a run."""


def _is_summary(log: RawLog) -> bool:
    """Are the rows results of runs, not of steps?"""
    keys = log.keys()
    return any(_SUMMARY.match(key) for key in keys)


def _is_row_a_step(log: RawLog) -> bool:
    """Is each row of a log without a step evidently one: a long table whose every row holds every column?"""
    return log.num_rows >= _MIN_ROWS and not _is_summary(log) and (bool(log.blocks) or log.is_table())


def _whole(value: Any) -> int | None:
    """A step: a whole number that JSON readers keep, up to 2**53; one beyond is damage, and would cost the
    whole log."""
    if type(value) is int:
        return value if abs(value) <= _MAX_STEP else None
    try:
        number = float(value)
        return int(number) if number == int(number) and abs(number) <= _MAX_STEP else None
    except (TypeError, ValueError, OverflowError):
        return None


def by_step(pairs: Iterable[tuple[int, str, float]]) -> list[dict[str, Any]]:
    """Rows of a stream of (step, key, value): consecutive values of one step share a row, as long as no key
    repeats."""
    rows: list[dict[str, Any]] = []
    row: dict[str, Any] = {}
    for step, key, value in pairs:
        if not row or row["step"] != step or key in row:
            row = {"step": step}
            rows.append(row)
        row[key] = value
    return rows
