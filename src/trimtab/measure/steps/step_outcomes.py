"""One step's groups, parts of the reward, and errors of tools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trimtab.capture.segments import MAX_NAMES
from trimtab.measure.steps.tail_quantiles import Estimates
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import TokenBatch
from trimtab.typing import Float64, Int64

Columns = dict[str, tuple[tuple[str, ...], Estimates]]
Row = tuple[str, float, float, int]  # slice, value, standard error, trajectories


def part_columns(batches: Sequence[TokenBatch], columns: Columns) -> None:
    """Add `reward_part/mean` of each part of the reward, in slices `reward/<part>`."""
    names = list(dict.fromkeys(name for batch in batches for name in batch.reward_parts))[:MAX_NAMES]
    rows: list[Row] = []
    for name in names:
        values = np.concatenate([b.reward_parts[name] for b in batches if name in b.reward_parts])
        values = values[~np.isnan(values)]
        if values.size:
            error = float(values.std() / math.sqrt(values.size))
            rows.append((f"reward/{name}", float(values.mean()), error, values.size))
    if rows:
        columns["reward_part/mean"] = estimates(rows)


def settled_columns(group: Int64, reward: Float64, columns: Columns, bar: float | None) -> None:
    """Add `groups/solved_frac` and `groups/hopeless_frac`: groups of one reward, a high or a low one.

    Args:
        group: (J,) group of each trajectory, counted from 0.
        reward: (J,) reward of each trajectory.
        columns: where the series go.
        bar: rewards from which on a group counts as solved; the middle of the step's rewards by default.
    """
    keep = ~np.isnan(reward)
    high, low = np.full(group.max() + 1, -np.inf), np.full(group.max() + 1, np.inf)
    np.maximum.at(high, group[keep], reward[keep])
    np.minimum.at(low, group[keep], reward[keep])
    counted = np.bincount(group[keep], minlength=high.size) > 1
    num = int(np.count_nonzero(counted))
    if not num:
        return
    if bar is None:
        bar = (float(reward[keep].max()) + float(reward[keep].min())) / 2
    flat = counted & (high == low)
    for name, which in (("solved", flat & (low >= bar)), ("hopeless", flat & (high < bar))):
        frac = float(np.count_nonzero(which)) / num
        error = math.sqrt(frac * (1 - frac) / (num - 1)) if num > 1 else math.nan
        columns[f"groups/{name}_frac"] = estimates([("all", frac, error, num)])


def tool_columns(calls: Sequence[ToolCall], columns: Columns) -> None:
    """Add `tools/error_frac`: of the calls of each tool those that failed, in slices `post_tool/<tool>`."""
    counts, errors = Counter(c.name for c in calls), Counter(c.name for c in calls if c.error)
    rows = [("all", len(calls), errors.total())]
    rows += [(f"post_tool/{name}", counts[name], errors[name]) for name, _ in counts.most_common(MAX_NAMES)]
    if calls:
        columns["tools/error_frac"] = estimates([
            (name, bad / num, math.sqrt(bad * (num - bad) / num**3), num) for name, num, bad in rows
        ])  # fmt: skip


def estimates(rows: Sequence[Row]) -> tuple[tuple[str, ...], Estimates]:
    """Rows of single numbers as a series' slices and estimates; they rest on no tokens."""
    names, values, errors, num = zip(*rows, strict=True)
    zeros = np.zeros(len(names), np.int64)
    return tuple(names), Estimates(
        np.array(values, np.float64), np.array(errors, np.float64), zeros, np.array(num, np.int64)
    )
