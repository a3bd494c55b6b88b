"""What do agent logs say: a table of episodes to readings, each with the places it rests on.

Shares have intervals that know of clusters: calls come in episodes, episodes in tasks (`stats.shares`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.measure.declared import Declared
from trimtab.measure.trace_bursts import bursts
from trimtab.measure.trace_maker import Maker, Measured
from trimtab.measure.trace_neglect import neglected
from trimtab.measure.trace_tools import tool_readings
from trimtab.measure.trace_words import first_wrongs, word_readings
from trimtab.stats.shares import share_interval
from trimtab.traces.reading import ReadReport
from trimtab.traces.table import Evidence, TraceTable
from trimtab.traces.wording import counted

__all__ = ["trace_readings"]

Floats = npt.NDArray[Any]

_PER_CALL = {
    "traces/failed_call_frac": "failed",
    "traces/repeat_frac": "repeats",
    "traces/bad_arguments_frac": "bad_arguments",
    "traces/unknown_tool_frac": "unknown_tools",
    "traces/schema_error_frac": "schema_errors",
    "traces/unanswered_frac": "unanswered",
}


def trace_readings(table: TraceTable, report: ReadReport, declared: Declared) -> list[Measured]:
    """Every reading of the table; what the logs cannot tell has the status `not observed` and says why."""
    maker = Maker(table)
    return [
        *_reading_lines(maker, report),
        *_outcome(maker, declared),
        *_episodes(maker),
        *_calls(maker),
        *word_readings(maker),
        *first_wrongs(maker, table.solved(declared.solved_at)[0]),
        *bursts(maker),
        *tool_readings(maker),
        *neglected(maker, declared),
    ]


def _reading_lines(maker: Maker, report: ReadReport) -> Iterator[Measured]:
    lines, bad = max(report.num_lines, report.num_malformed), report.num_malformed
    found = [Evidence("", p.line, p.reason, f"{p.file}:{p.line}") for p in report.problems[:5]]
    ends = share_interval(bad / lines, lines) if lines else None
    yield maker.value(
        "traces/malformed_frac", bad / lines if lines else math.nan, lines, ends=ends, evidence=found,
        text=f"{bad:,} of {counted(lines, 'line')}",
    )  # fmt: skip


def _outcome(maker: Maker, declared: Declared) -> Iterator[Measured]:
    table = maker.table
    solved, source = table.solved(declared.solved_at)
    known = (solved >= 0).astype(np.float64)
    rewarded = np.isfinite(table.reward).any()
    reason = "no success in the log, and " + (
        "the rewards are not 0 and 1: give --solved-at" if rewarded else "no reward"
    )
    yield maker.share(
        "traces/solved_frac",
        (solved == 1) * known,
        known,
        maker.clusters,
        reason,
        what=f"episodes, by {source}",
    )
    kept = table.evidence.get("nan_rewards", [])
    yield maker.value(
        "traces/nan_rewards",
        float(table.nan_rewards),
        table.num_episodes,
        evidence=kept,
        text=f"{table.nan_rewards} rewards",
    )
    finite = np.isfinite(table.reward)
    rewards = table.reward[finite]
    spread = float(rewards.std(ddof=1)) if rewards.size > 1 else math.nan
    text = f"{rewards.size:,} rewards from {rewards.min():g} to {rewards.max():g}" if rewards.size else ""
    yield maker.value("traces/reward_std", spread, rewards.size, reason="fewer than two rewards", text=text)
    yield _disagreement(maker)
    yield from _groups(maker)


def _disagreement(maker: Maker) -> Measured:
    table = maker.table
    both = np.isfinite(table.reward) & (table.success >= 0)
    right = both & (table.success == 1)
    typical = float(np.median(table.reward[right])) if right.any() else math.inf
    wrong = both & np.where(
        table.success == 1, table.reward <= 0, table.reward >= max(typical, np.nextafter(0, 1))
    )
    found = [
        Evidence(
            table.ids[i],
            -1,
            f"{'solved' if table.success[i] else 'not solved'} at a reward of {table.reward[i]:g}",
            table.sources[i],
        )
        for i in np.flatnonzero(wrong)[:5]
    ]
    reason = "needs episodes with both a reward and a success"
    return maker.share(
        "traces/disagree_frac", wrong * 1.0, both * 1.0, maker.clusters, reason, found, "episodes"
    )


def _groups(maker: Maker) -> Iterator[Measured]:
    """Groups of two or more rewards: equal within. Those of one task, at several steps, are one cluster."""
    table = maker.table
    fine = np.isfinite(table.reward) & (table.group >= 0)
    where = table.group[fine]
    sizes = np.bincount(where, minlength=len(table.groups))
    low = np.full(sizes.size, np.inf)
    high = np.full(sizes.size, -np.inf)
    np.minimum.at(low, where, table.reward[fine])
    np.maximum.at(high, where, table.reward[fine])
    cluster = np.zeros(sizes.size, np.int64)
    cluster[where] = maker.clusters[fine]
    groups = sizes >= 2
    flat = groups & (low == high)
    kind = "task" if table.groups == table.tasks else "group"
    by_prompt = table.by_prompt == (table.group >= 0).sum() > 0
    kind, name = ("prompt", "{}") if by_prompt else (kind, f"{kind} {{}}")
    found = [
        Evidence("", -1, f"{sizes[i]} rewards of {low[i]:g}", name.format(table.groups[i]))
        for i in np.flatnonzero(flat)[:5]
    ]
    yield maker.share(
        "aggregate/zero_std_frac", flat * 1.0, groups * 1.0, cluster, f"no {kind} has two rewards", found,
        f"{kind}s with two rewards and more{', as the log names no task' if by_prompt else ''}",
    )  # fmt: skip


def _episodes(maker: Maker) -> Iterator[Measured]:
    table, ones = maker.table, np.ones(maker.table.num_episodes)
    known = (table.truncated >= 0) * 1.0
    cut = np.flatnonzero(table.truncated == 1)
    found = [
        Evidence(table.ids[i], -1, f"stop reason {table.stops[table.stop[i]]}", table.sources[i])
        for i in cut[:5]
    ]
    yield maker.share(
        "traces/truncated_frac",
        (table.truncated == 1) * 1.0,
        known,
        maker.clusters,
        "no stop reason in the log",
        found,
        "episodes",
    )
    for key, column, least in (
        ("traces/loop_frac", "loop_calls", 1),
        ("traces/tool_fault_frac", "tool_faults", 1),
    ):
        hits = (table.counts[column] >= least) * 1.0
        yield maker.share(
            key, hits, ones, maker.clusters, evidence=table.evidence.get(column), what="episodes"
        )
    calls = table.counts["calls"]
    silent = np.flatnonzero(calls == 0)
    found = [Evidence(table.ids[i], -1, "no call", table.sources[i]) for i in silent[:5]]
    some = ones if calls.any() else np.zeros(ones.size)
    yield maker.share(
        "traces/no_call_frac",
        (calls == 0) * some,
        some,
        maker.clusters,
        "no episode has a call",
        found,
        "episodes",
    )


def _calls(maker: Maker) -> Iterator[Measured]:
    table = maker.table
    turns = table.counts["turns"].astype(np.float64)
    void = table.counts["void_turns"].astype(np.float64)
    yield maker.share(
        "traces/void_turn_frac",
        void,
        turns,
        maker.clusters,
        "no assistant turn",
        table.evidence.get("void_turns"),
        "assistant turns",
    )
    calls = table.counts["calls"].astype(np.float64)
    for key, column in _PER_CALL.items():
        if column == "schema_errors" and not table.num_checked_schemas:
            yield maker.value(
                key, math.nan, 0, reason="no call could be held against a schema: the log has none"
            )
            continue
        hits = table.counts[column].astype(np.float64)
        what = "calls, by text" if column == "failed" and not table.told_by_log else "calls"
        yield maker.share(key, hits, calls, maker.clusters, "no call", table.evidence.get(column), what)
