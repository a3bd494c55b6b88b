"""The rows of a step's ranks as those of one sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.distributed.shard import Block
from trimtab.measure.steps.step_series import StepSeries

Row = dict[str, Any]


@dataclass(frozen=True)
class MergedStep:
    """One step of all ranks that had written it when it was merged."""

    step: int
    ranks: tuple[int, ...]  # whose shards are in it
    missing: tuple[int, ...]  # ranks it was not waited for any longer
    row: Row  # the row of steps, as `merge_steps` makes it
    of_rank: Mapping[int, Row]  # the rows of steps as the ranks wrote them
    series: StepSeries | None
    tools: tuple[Row, ...]
    blocks: tuple[Block, ...]  # merged states, of blocks that ended with this step


def merge_steps(rows: Iterable[Row]) -> list[Row]:
    """Return one row a step: the lowest rank's numbers, counts added over ranks, a failure of any rank.

    >>> first = {"step": 3, "slices": {"all": {"n_tokens": 5, "n_trajectories": 1}}, "nonfinite": {},
    ...     "columns": ["reward"], "failed": False, "time": 1.0}
    >>> merge_steps([first, first])[0]["slices"]
    {'all': {'n_tokens': 10, 'n_trajectories': 2}}
    """
    merged: dict[int, Row] = {}
    copied: set[int] = set()
    for row in rows:
        step = row["step"]
        if step not in merged:
            merged[step] = row
            continue
        if step not in copied:
            first = merged[step]
            merged[step] = {**first, "slices": dict(first["slices"]), "nonfinite": dict(first["nonfinite"])}
            copied.add(step)
        known = merged[step]
        for name, counts in row["slices"].items():
            mine = known["slices"].get(name, {})
            known["slices"][name] = {k: mine.get(k, 0) + counts[k] for k in ("n_tokens", "n_trajectories")}
        for column, count in row["nonfinite"].items():
            known["nonfinite"][column] = known["nonfinite"].get(column, 0) + count
        known["columns"] = sorted(set(known["columns"]) & set(row["columns"]))
        known["failed"] = known["failed"] or row["failed"]
        known["time"] = max(known["time"], row["time"])
    return [merged[step] for step in sorted(merged)]
