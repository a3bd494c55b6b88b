"""All readings of agent logs: from a table of episodes, each with the examples it rests on.

Shares have intervals that know of clusters: calls come in episodes, episodes in tasks (`stats.shares`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.builder import Maker, Measured
from trimtab.measure.traces.failure_bursts import bursts
from trimtab.measure.traces.outcomes import first_symptoms, word_readings
from trimtab.measure.traces.required_tools import neglected
from trimtab.measure.traces.rewards import reward_readings
from trimtab.measure.traces.tools import tool_readings
from trimtab.stats.intervals import share_interval
from trimtab.traces.core.plural import counted
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.table.types import Evidence, TraceTable

_PER_CALL = {
    "traces/failed_call_frac": "failed",
    "traces/repeat_frac": "repeats",
    "traces/bad_arguments_frac": "bad_arguments",
    "traces/unknown_tool_frac": "unknown_tools",
    "traces/schema_error_frac": "schema_errors",
    "traces/unanswered_frac": "unanswered",
}


def trace_readings(table: TraceTable, report: ReadReport, declared: Requirements) -> list[Measured]:
    """Every reading of the table; what the logs lack has the status `not observed` and says why."""
    maker = Maker(table)
    return [
        *_reading_lines(maker, report),
        *reward_readings(maker, declared),
        *_episodes(maker),
        *_calls(maker),
        *word_readings(maker),
        *first_symptoms(maker, table.solved(declared.solved_at)[0]),
        *bursts(maker),
        *tool_readings(maker),
        *neglected(maker, declared),
    ]


def _reading_lines(maker: Maker, report: ReadReport) -> Iterator[Measured]:
    lines, bad = max(report.num_lines, report.num_malformed), report.num_malformed
    examples = [Evidence("", p.line, p.reason, f"{p.file}:{p.line}") for p in report.problems[:5]]
    ends = share_interval(bad / lines, lines) if lines else None
    yield maker.value(
        "traces/malformed_frac", bad / lines if lines else math.nan, lines, ends=ends, evidence=examples,
        text=f"{bad:,} of {counted(lines, 'line')}",
    )  # fmt: skip
    files = max(len(report.formats), len(report.cut), 1)
    cut = [Evidence("", p.line, p.reason, f"{p.file}:{p.line}") for p in report.cut[:5]]
    yield maker.value(
        "traces/cut_files", float(len(report.cut)), files, evidence=cut,
        text=f"{len(report.cut):,} of {counted(files, 'file')}",
    )  # fmt: skip


def _episodes(maker: Maker) -> Iterator[Measured]:
    table, ones = maker.table, np.ones(maker.table.num_episodes)
    known = (table.truncated >= 0) * 1.0
    cut = np.flatnonzero(table.truncated == 1)
    examples = [
        Evidence(table.ids[i], -1, f"stop reason {table.stops[table.stop[i]]}", table.sources[i])
        for i in cut[:5]
    ]
    yield maker.share(
        "traces/truncated_frac",
        (table.truncated == 1) * 1.0,
        known,
        maker.clusters,
        "no stop reason in the log",
        examples,
        "episodes",
    )
    for key, column, min_count in (
        ("traces/loop_frac", "loop_calls", 1),
        ("traces/tool_fault_frac", "tool_faults", 1),
    ):
        hits = (table.counts[column] >= min_count) * 1.0
        yield maker.share(
            key, hits, ones, maker.clusters, evidence=table.evidence.get(column), what="episodes"
        )
    calls = table.counts["calls"]
    silent = np.flatnonzero(calls == 0)
    examples = [Evidence(table.ids[i], -1, "no call", table.sources[i]) for i in silent[:5]]
    some = ones if calls.any() else np.zeros(ones.size)
    yield maker.share(
        "traces/no_call_frac",
        (calls == 0) * some,
        some,
        maker.clusters,
        "no episode has a call",
        examples,
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
                key, math.nan, 0, reason="no call could be checked against a schema: the log has none"
            )
            continue
        hits = table.counts[column].astype(np.float64)
        what = "calls, by text" if column == "failed" and not table.error_flags_in_log else "calls"
        yield maker.share(key, hits, calls, maker.clusters, "no call", table.evidence.get(column), what)
