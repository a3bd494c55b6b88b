"""Which tools are called, fail or are slow in agent logs?

The keys are those of a run (`measure.tool_health`); the window is the whole log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.traces.builder import Maker, Measured, independent
from trimtab.stats.intervals import effective_trials, share_interval
from trimtab.traces.core.plural import counted
from trimtab.traces.table.types import ToolRow


def tool_readings(maker: Maker) -> Iterator[Measured]:
    """Calls, share, failures and latency of each tool, in the slice `tool/<name>`."""
    table, total = maker.table, maker.table.total("calls")
    for name, row in table.tools.items():
        where = f"tool/{name}"
        yield maker.value("tools/calls", float(row.calls), row.calls, where)
        yield maker.value("tools/share", row.calls / total, total, where)
        yield maker.value(
            "tools/calls_per_episode", row.calls / table.num_episodes, table.num_episodes, where
        )
        exists = row.unknown < row.calls
        share = row.failed / row.calls if exists else math.nan
        examples = table.evidence.get(f"failed/{name}")
        yield maker.value(
            "tools/failure_frac",
            share,
            row.calls,
            where,
            "there is no such tool: its calls are those of unknown tools",
            ends=share_interval(share, _independent_calls(maker, name, row)),
            evidence=examples,
            text=_failures(row) + ("" if table.error_flags_in_log else ", by text"),
        )
        for label, seconds in (("p50", row.p50), ("p95", row.p95), ("p99", row.p99)):
            reason, slowest = "the log has no latency nor timestamps to take one from", label == "p95"
            yield maker.value(
                f"tools/latency_{label}_s", seconds, row.timed, where, reason, text=_seconds(row),
                ends=(row.p95_low, row.p95_high) if slowest else None,
                evidence=row.slowest if slowest else None,
            )  # fmt: skip


def _seconds(row: ToolRow) -> str:
    ends = f", surely {row.p95_low:.3g} s or more" if math.isfinite(row.p95_low) else ""
    return (
        f"95th percentile {row.p95:.3g} s{ends}, median {row.p50:.3g} s; {counted(row.timed, 'call')} timed"
    )


def _independent_calls(maker: Maker, name: str, row: ToolRow) -> float:
    """How many independent calls carry as much about the tool's share of failures?

    The table has what each episode's calls of one tool are worth only as sums, so that attempts at one task
    are alike is learnt from two shares of the episodes that call it: of those in which a call of it fails,
    and of failures in their calls of all tools. By as much as clustering by task instead of by episode takes
    from the worse of these, it is taken from the tool's; exact where it is the only tool they call, or calls
    are one an episode. Nothing is taken where each task has one episode, and nothing is ever added.
    """
    table, index = maker.table, maker.table.tool_names.index(name)
    used = table.used[:, index]
    tasks, calls, failed = maker.clusters[used], table.counts["calls"][used], table.counts["failed"][used]
    trials = effective_trials(row.calls, row.failed, row.episodes, row.sum_ff, row.sum_fc, row.sum_cc)
    shares: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = [(failed, calls)]
    if (calls.sum(), failed.sum()) != (row.calls, row.failed):
        shares.append((table.erred[used, index], used[used]))
    return trials * min(1.0, *(_kept_by_task(f * 1.0, c * 1.0, tasks) for f, c in shares))


def _kept_by_task(hits: npt.NDArray[Any], trials: npt.NDArray[Any], tasks: npt.NDArray[np.int64]) -> float:
    """The part of what trials are worth by episode that is left by task."""
    return independent(hits, trials, tasks) / independent(hits, trials)


def _failures(row: ToolRow) -> str:
    kinds = "; ".join(
        f"{low:,}{f' to {high:,}' if high > low else ''} x {kind}"
        for kind, low, high in row.kinds.most_common(3)
    )
    whose = ", ".join(
        f"{count:,} by the {who}" for who, count in row.faults.most_common() if who != "unknown"
    )
    return (
        f"{row.failed:,} of {counted(row.calls, 'call')}, in {counted(row.episodes, 'episode')}"
        + (f": {kinds}" if kinds else "")
        + (f" ({whose})" if whose else "")
    )
