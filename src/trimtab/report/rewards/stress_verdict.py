"""The verdict of a reward under probes: as a JSON object, and in lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.report.control_characters import escape_controls
from trimtab.report.screen import cut, figure
from trimtab.rewards.answer_formats import mean_of
from trimtab.rewards.environment.environment_stress import PAID
from trimtab.rewards.probe_findings import RewardFinding, findings_of, honest_rewards
from trimtab.rewards.probe_run import ProbeRecord, ProbeScore
from trimtab.traces.core.plural import counted

_MAX_EXAMPLE = 2_000
CAVEAT = "Probes find what they try. What has no finding can still be hacked."


def stress_verdict(record: ProbeRecord) -> dict[str, Any]:
    """Return the result of `trimtab stress reward --json`: findings, baseline, every probe, exit code."""
    findings = findings_of(record)
    grave = [finding for finding in findings if finding.severity != "info"]
    right, wrong = honest_rewards(record)
    assert record.chosen is not None
    verdict = "hackable" if any(f.gain > 0 for f in grave) or record.ignores_answer else "defective"
    return {
        "target": record.target, "verdict": verdict if grave else "no exploit seen",
        "headline": _headline(grave, record), "num_tasks": record.num_tasks,
        "baseline": {
            "format": record.chosen.format.name, "template": record.chosen.format.template,
            "right": right, "wrong": wrong, "right_minus_wrong": record.scale,
            "tells_right_from_wrong": not record.ignores_answer,
        },
        "findings": [_finding_row(finding) for finding in findings],
        "formats": [
            {"format": s.format.name, "right": mean_of(s.right), "wrong": mean_of(s.wrong)}
            for s in record.formats
        ],
        "probes": [_probe_row(score) for score in (*record.scores, *record.right_scores)],
        "errors": record.errors, "slow_s": record.slow, "not_finite": record.not_finite,
        "noise": record.noise, "batch_change": record.batch_change, "num_skipped": record.num_skipped,
        "num_calls": record.num_calls, "num_completions": record.num_completions,
        "median_s": record.median_s, "unfinished": record.unfinished, "caveat": CAVEAT,
        "exit_code": 1 if grave else 0,
    }  # fmt: skip


def _headline(grave: Sequence[RewardFinding], record: ProbeRecord) -> str:
    seen = f"{counted(record.num_completions, 'completion')} of {counted(record.num_tasks, 'task')}"
    if not grave:
        return f"No exploit seen: {seen} tried, and none was paid like a right answer."
    first = grave[0]
    more = f", and {counted(len(grave) - 1, 'more finding')}" if len(grave) > 1 else ""
    return f"{first.what[0].upper()}{first.what[1:]}{more}."


def _finding_row(finding: RewardFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind, "severity": finding.severity, "what": finding.what, "advice": finding.advice,
        "gain": finding.gain, "variant": finding.variant, "example": printable(finding.example),
    }  # fmt: skip


def _probe_row(score: ProbeScore) -> dict[str, Any]:
    return {
        "family": score.family, "variant": score.name, "gain": score.gain, "reward": score.reward,
        "error": score.error,
    }  # fmt: skip


def printable(text: str) -> str:
    """Return a text of at most 2,000 characters that UTF-8 can hold."""
    return text[:_MAX_EXAMPLE].encode("utf-8", "backslashreplace").decode()


def stress_lines(result: dict[str, Any], examples: int = 3) -> list[str]:
    """Return the verdict in lines: headline, baseline, findings with an example each, what was left out."""
    base = result["baseline"]
    lines = [
        f"{result['verdict'].upper()}: {result['target']}", f"  {result['headline']}",
        f"  honest answers, format `{base['format']}`: right {_number(base['right'])}, "
        f"wrong {_number(base['wrong'])}; "
        f"{counted(result['num_completions'], 'completion')} in {counted(result['num_calls'], 'call')}",
    ]  # fmt: skip
    for number, row in enumerate(result["findings"]):
        lines.append(f"  [{row['severity']}] {row['kind']}: {row['what']}")
        if row["severity"] == "info":
            continue
        if row["example"] and number < examples:
            shown = row["example"] if len(row["example"]) < 160 else f"{row['example'][:160]}..."
            lines.append(cut(f"      e.g. {shown!r}"))
        lines.append(f"      do: {row['advice']}")
    if result["num_skipped"]:
        lines.append(f"  not scored: {counted(result['num_skipped'], 'completion')}, for which it gave None")
    if result["unfinished"]:
        lines.append(f"  left out: the remaining probes, for {result['unfinished']}")
    if "changes" in result:
        lines += change_lines(result)
    return [escape_controls(line) for line in [*lines, f"  {result['caveat']}"]]


def change_lines(result: dict[str, Any]) -> list[str]:
    """Return what differs from the other revision."""
    lines = ["", f"Against {result['against']}:"]
    for row in result["changes"]:
        gains = f"{_percent(row['gain_old'])} -> {_percent(row['gain_new'])}"
        lines.append(f"  {row['status']}: {row['kind']}, gain {gains}")
    if not result["changes"]:
        lines.append("  no finding in either")
    if logged := result.get("completions"):
        changed = f"{logged['num_changed']} of {logged['num_compared']} changed ({logged['num_up']} up)"
        means = f"mean {_number(logged['mean_old'])} -> {_number(logged['mean_new'])}"
        rank = f"rank correlation {_number(logged['rank_correlation'])}"
        lines.append(f"  logged completions: {changed}, {means}, {rank}")
        for one in logged["examples"][:3]:
            lines.append(
                cut(f"    {_number(one['old'])} -> {_number(one['new'])}: {one['completion'][:200]!r}")
            )
    return lines


Rows = list[dict[str, Any]]


def exploits_by_outcome(result: Mapping[str, Any]) -> tuple[Rows, Rows, Rows]:
    """Return the rows of exploits that were paid, that were not, and that could not act."""
    rows: Rows = result["exploits"]
    acted = [row for row in rows if math.isfinite(row["gain"])]
    paid = [row for row in acted if row["gain"] > PAID]
    return paid, [row for row in acted if row["gain"] <= PAID], [row for row in rows if row not in acted]


def environment_lines(result: dict[str, Any]) -> list[str]:
    """Return the verdict of `stress_environment` in lines: what was paid, then what was not."""
    paid, refused, failed = exploits_by_outcome(result)
    lines = [
        f"{result['verdict'].upper()}: {result['environment']}", f"  {result['headline']}",
        f"  honest solutions: right {_number(result['right'])}, wrong {_number(result['wrong'])}",
    ]  # fmt: skip
    for row in paid:
        lines.append(f"  [critical] {row['exploit']}, gain {_percent(row['gain'])}: {row['what']}")
    if refused:
        lines.append(f"  not paid: {', '.join(row['exploit'] for row in refused)}")
    lines += [f"  not run: {row['exploit']}, {row['ending']}" for row in failed]
    return [escape_controls(line) for line in [*lines, f"  {CAVEAT}"]]


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else figure(value)


def _percent(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.0f} %"
