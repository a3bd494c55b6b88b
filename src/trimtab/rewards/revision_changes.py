"""Two revisions of a reward on the same probes, and on completions that a run wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.errors import RewardError
from trimtab.rewards.function_process import FunctionProcess
from trimtab.rewards.probe_findings import SEVERITIES, RewardFinding
from trimtab.rewards.probe_tasks import ProbeTask
from trimtab.typing import Float64

_MAX_EXAMPLES = 5


def changed_findings(old: Sequence[RewardFinding], new: Sequence[RewardFinding]) -> list[dict[str, Any]]:
    """Return one row a kind of finding that either revision has: status, severities and gains.

    Status is "new", "worse", "same", "better" or "fixed": by severity, then by a gain that moved 5 points.

    Example:
        >>> a = RewardFinding("judge", "critical", "", "", 1.0)
        >>> [row["status"] for row in changed_findings([a], [])]
        ['fixed']
    """
    before, after = {f.kind: f for f in old}, {f.kind: f for f in new}
    rows = []
    for kind in dict.fromkeys([*after, *before]):
        a, b = before.get(kind), after.get(kind)
        rows.append({
            "kind": kind, "status": _status(a, b),
            "severity_old": a.severity if a else None, "severity_new": b.severity if b else None,
            "gain_old": a.gain if a else math.nan, "gain_new": b.gain if b else math.nan,
        })  # fmt: skip
    order = ("new", "worse", "same", "better", "fixed")
    return sorted(rows, key=lambda row: order.index(row["status"]))


def _status(a: RewardFinding | None, b: RewardFinding | None) -> str:
    if a is None or b is None:
        return "new" if a is None else "fixed"
    moved = SEVERITIES.index(a.severity) - SEVERITIES.index(b.severity)
    step = b.gain - a.gain if math.isfinite(a.gain) and math.isfinite(b.gain) else 0.0
    if moved or abs(step) > 0.05:
        return "worse" if moved > 0 or (not moved and step > 0) else "better"
    return "same"


def rescored(old: str, new: str, tasks: Sequence[ProbeTask], timeout_s: float = 60.0) -> dict[str, Any]:
    """Score logged completions with both revisions.

    Args:
        tasks: tasks with a `completion` each, as `load_tasks(path, limit=0)` reads them.

    Returns:
        Counts, both means, Spearman's correlation, and the completions whose reward changed most.

    Raises:
        RewardError: no completion in the rows, or a revision that fails on them.
    """
    rows = [task for task in tasks if task.completion]
    if not rows:
        raise RewardError("--completions has no row with a completion; each needs prompt, completion, answer")
    a, b = (_score(spec, rows, timeout_s) for spec in (old, new))
    both = np.isfinite(a) & np.isfinite(b)
    apart = np.where(both, b - a, 0.0)
    order = np.argsort(-np.abs(apart), kind="stable")[:_MAX_EXAMPLES]
    return {
        "num_completions": len(rows), "num_compared": int(both.sum()),
        "mean_old": _mean(a[both]), "mean_new": _mean(b[both]),
        "num_changed": int((np.abs(apart) > 1e-9).sum()), "num_up": int((apart > 1e-9).sum()),
        "rank_correlation": _spearman(a[both], b[both]),
        "examples": [
            {
                "prompt": rows[i].prompt[:300], "completion": rows[i].completion[:600],
                "old": float(a[i]), "new": float(b[i]),
            }
            for i in order if abs(apart[i]) > 1e-9
        ],
    }  # fmt: skip


def _score(spec: str, rows: Sequence[ProbeTask], timeout_s: float) -> Float64:
    names = sorted(set.intersection(*(set(row.columns) for row in rows)))
    columns = {name: [row.columns[name] for row in rows] for name in names}
    with FunctionProcess(spec, timeout_s) as process:
        call = process.call([row.prompt for row in rows], [row.completion for row in rows], columns)
        if call.kind == "exception":
            process.conversational = True
            again = process.call([row.prompt for row in rows], [row.completion for row in rows], columns)
            call = call if again.error else again
    if call.error:
        raise RewardError(f"{spec} fails on the logged completions: {call.error}")
    return np.array([np.nan if value is None else value for value in call.rewards], np.float64)


def _mean(values: Float64) -> float:
    return float(values.mean()) if values.size else math.nan


def _spearman(a: Float64, b: Float64) -> float:
    """Pearson's correlation of mid-ranks; NaN where one of them does not vary."""
    if a.size < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Float64) -> Float64:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middles: Float64 = (ends - counts + ends - 1) / 2.0
    return middles[inverse]
