"""The diagnosis of agent logs: what was read, the rules that fire with their evidence, and what separates
failed from solved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab.catalog import bound
from trimtab.detect.traces.multiple_testing import JudgedContrast, judge_contrasts
from trimtab.detect.traces.rules import Finding, trace_findings, trace_verdict
from trimtab.detect.verdict import Verdict
from trimtab.errors import TraceError
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.builder import Measured
from trimtab.measure.traces.contrasts import contrasts
from trimtab.measure.traces.early_late import Drift, drifts
from trimtab.measure.traces.outcomes import Outcome, outcomes
from trimtab.measure.traces.pass_at_k import pass_k
from trimtab.measure.traces.run_all import trace_readings
from trimtab.measure.traces.sizes import sizes
from trimtab.report.headline import trace_headline
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.errors.patterns import compile_patterns
from trimtab.traces.table.required_files import RequiredFiles
from trimtab.traces.table.types import MAX_KINDS, OTHER, TraceTable
from trimtab.traces.table_of_logs import table_of


@dataclass(frozen=True)
class TraceDiagnosis:
    """`separates`: contrasts of failed less solved episodes; `solved` (E,): 1, 0, or -1 unknown; `solved_by`:
    where that comes from, empty when unknown."""

    paths: tuple[str, ...]
    report: ReadReport
    table: TraceTable
    measured: list[Measured]
    findings: list[Finding]
    verdict: Verdict
    separates: list[JudgedContrast]
    outcomes: list[Outcome]
    solved: Any
    solved_by: str
    seconds: float
    drift: list[tuple[Drift, list[JudgedContrast]]]


def diagnose_traces(
    paths: Iterable[str | Path],
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    strict: bool = False,
    declared: Requirements | None = None,
    progress: Callable[[int], None] | None = None,
    error_patterns: Iterable[str] = (),
    ray: str | None = None,
) -> TraceDiagnosis:
    """Read agent logs and judge them; `ray` as `table_of`, `progress` as `ReadReport`, `error_patterns`:
    regular expressions of results that report an error. TraceError for logs that cannot be read, or hold no
    episode."""
    start, names, declared = time.perf_counter(), tuple(map(str, paths)), declared or Requirements()
    report = ReadReport(strict=strict, progress=progress, error_patterns=compile_patterns(error_patterns))
    files = RequiredFiles(declared.required_files, declared.key_arguments)
    table = table_of(names, report, format, mapping, files, ray)
    return diagnose_table(names, table, report, declared, start)


def diagnose_table(
    paths: tuple[str, ...], table: TraceTable, report: ReadReport, declared: Requirements, start: float
) -> TraceDiagnosis:
    """Judge a table of `report`; `start` by `time.perf_counter`."""
    if not table.num_episodes:
        where = "".join(f"; {count:,} x {why}" for why, count in report.notes.most_common(3))
        for file, line, reason in report.problems[:1]:
            where = f"; {file}:{line}: {reason}"
        raise TraceError(f"{', '.join(paths)}: no episode ({report.num_malformed:,} malformed lines{where})")
    solved, source = table.solved(declared.solved_at)
    with ThreadPoolExecutor(2) as pool:  # none of them writes to the table
        read = pool.submit(trace_readings, table, report, declared)
        apart = pool.submit(_separates, table, solved) if source else None
        drift = _drift(table, solved if source else None)
        by_outcome = list(outcomes(table, solved))
        measured, separates = read.result(), apart.result() if apart else []
    findings = trace_findings(measured)
    empty = int((table.counts["turns"] == 0).sum())
    unread = report.unread_messages.total(), report.num_messages
    verdict = trace_verdict(findings, measured, table.num_episodes, empty, unread)
    return TraceDiagnosis(
        paths, report, table, measured, findings, verdict, separates, by_outcome, solved, source,
        time.perf_counter() - start, drift,
    )  # fmt: skip


def _separates(table: TraceTable, solved: Any) -> list[JudgedContrast]:
    return judge_contrasts(contrasts(table, solved == 0, solved == 1, endings=False))


def _drift(table: TraceTable, solved: Any) -> list[tuple[Drift, list[JudgedContrast]]]:
    """Every split of the log, with intervals and p that are corrected for the contrasts of all of them."""
    splits = drifts(table, solved)
    judged = judge_contrasts([one for drift in splits for one in drift.contrasts])
    return [(drift, [j for j in judged if id(j.contrast) in map(id, drift.contrasts)]) for drift in splits]


def trace_diagnosis(diagnosed: TraceDiagnosis) -> dict[str, Any]:
    """The diagnosis as JSON types; NaN and infinity are the caller's to make strict."""
    table, report = diagnosed.table, diagnosed.report
    findings = [_finding(finding) for finding in diagnosed.findings]
    return {
        "logs": list(diagnosed.paths),
        "formats": report.formats,
        "verdict": diagnosed.verdict.word,
        "reason": diagnosed.verdict.reason,
        "headline": trace_headline(diagnosed.verdict, findings, table.num_episodes),
        "exit_code": diagnosed.verdict.exit_code,
        "num_episodes": table.num_episodes,
        "num_calls": table.total("calls"),
        "failures_told_by": "the log" if table.error_flags_in_log else "text",
        "num_tasks": len(table.tasks),
        "num_lines": report.num_lines,
        "num_malformed": report.num_malformed,
        "num_messages": report.num_messages,
        "num_without_turns": int((table.counts["turns"] == 0).sum()),
        "num_unread": report.unread_messages.total(),
        "unread": dict(report.unread_messages.most_common()),
        "malformed": [problem._asdict() for problem in report.problems],
        "notes": dict(report.notes),
        "solved_by": diagnosed.solved_by,
        "num_solved": int((diagnosed.solved == 1).sum()),
        "num_scored": int((diagnosed.solved >= 0).sum()),
        "pass_k": [asdict(row) for row in pass_k(table, diagnosed.solved)],
        "findings": findings,
        "readings": [_reading(one) for one in diagnosed.measured],
        "tools": _tools(table),
        "sizes": [asdict(row) for row in sizes(table)],
        "separates": list(map(contrast_payload, diagnosed.separates)),
        "drift": [
            {"by": drift.by, "a": drift.a, "b": drift.b, "contrasts": list(map(contrast_payload, judged))}
            for drift, judged in diagnosed.drift
        ],
        "outcomes": [asdict(one) for one in diagnosed.outcomes],
        "seconds": diagnosed.seconds,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    rule, reading = finding.rule, finding.measured.reading
    return {
        "rule": rule.name, "severity": finding.severity, "slice": reading.slice, "key": reading.key,
        "value": reading.value,
        "low": reading.low, "high": reading.high, "n": reading.n_tokens, "bound": finding.bound,
        "numbers": finding.measured.text,
        "what": rule.what, "why": rule.why, "advice": rule.advice, "reference": rule.reference,
        "evidence": [asdict(evidence) for evidence in finding.measured.evidence],
    }  # fmt: skip


def _reading(one: Measured) -> dict[str, Any]:
    reading = one.reading
    return {
        "key": reading.key, "slice": reading.slice, "value": reading.value, "low": reading.low,
        "high": reading.high,
        "n": reading.n_tokens, "status": reading.status, "reason": reading.reason, "numbers": one.text,
    }  # fmt: skip


def _tools(table: TraceTable) -> list[dict[str, Any]]:
    rows = sorted(table.tools.items(), key=lambda item: -item[1].calls)
    return [
        {
            "tool": name, "calls": row.calls, "failed": row.failed, "error_frac": row.failed / row.calls,
            "episodes": row.episodes,
            "latency_p50_s": row.p50, "latency_p95_s": row.p95, "latency_p99_s": row.p99, "timed": row.timed,
            "judged": row.calls >= bound("trace_calls"), "kinds": row.kinds.shown(MAX_KINDS, OTHER),
            "kinds_max_undercount": row.kinds.max_undercount, "faults": dict(row.faults),
        }
        for name, row in rows
    ]  # fmt: skip


def contrast_payload(one: JudgedContrast) -> dict[str, Any]:
    """Return a judged contrast as JSON types, the contrast's own fields among them."""
    judged = asdict(one)
    return {**judged.pop("contrast"), **judged}
