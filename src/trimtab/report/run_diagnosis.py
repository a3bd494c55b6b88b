"""The diagnosis of a run: verdict, alarms, what was not observed; as JSON types and as lines for a terminal."""

from __future__ import annotations

import math
import time
from typing import Any

from trimtab.report.alarms import alarm_payload, alarms_lines, taken_lines
from trimtab.report.control_characters import escape_controls
from trimtab.report.run_tables import exemplar_table, tools_table
from trimtab.report.run_view import RunView

_LATEST = (
    "drift/p95",
    "drift/p99",
    "mismatch/p99",
    "mismatch/token_ess_frac",
    "total/p99",
    "ref_logprob/below_5_frac",
)


def diagnosis(view: RunView) -> dict[str, Any]:
    """Verdict with its exit code, alarms, latest readings by slice, what was not observed or not judged yet, failures."""
    steps = view.steps
    return {
        "run": str(view.folder),
        "verdict": view.verdict.word,
        "reason": view.verdict.reason,
        "exit_code": view.verdict.exit_code,
        "first_step": steps[0]["step"] if steps else None,
        "last_step": steps[-1]["step"] if steps else None,
        "num_steps": len(steps),
        "ranks": len(view.reader.ranks),
        "sessions": view.reader.num_sessions,
        "alarms": [alarm_payload(alarm, view.user_rules) for alarm in view.alarms],
        "judged": list(view.evidence.judged),
        "not_run": view.rules_without_input,
        "drawn_in": view.pipeline.drawn_in(),
        "left_out": view.pipeline.left_out(),
        "not_observed": view.not_observed,
        "min_tokens": view.min_tokens,
        "min_trajectories": view.min_trajectories,
        "slices": [_slice(view, name) for name in view.slices],
        "tools": tools_table(view.tools),
        "exemplars": exemplar_table(view.exemplars),
        "num_failures": len(view.errors),
        "last_failure": view.errors[-1]["error"] if view.errors else None,
        "written_s_ago": max(0.0, time.time() - steps[-1]["time"]) if steps else None,
        "num_superseded": view.reader.num_superseded,
        "num_torn": view.reader.num_torn,
        "num_malformed": view.reader.num_malformed,
    }


def _slice(view: RunView, name: str) -> dict[str, Any]:
    tokens = sum(row["slices"].get(name, {}).get("n_tokens", 0) for row in view.steps)
    trajectories = sum(row["slices"].get(name, {}).get("n_trajectories", 0) for row in view.steps)
    latest: dict[str, Any] = {}
    for key in _LATEST:
        judged = [reading for reading in view.series(key, name) if reading.status == "ok"]
        for reading in judged[-1:]:
            latest[key] = {
                "value": reading.value,
                "low": reading.low,
                "high": reading.high,
                "n_tokens": reading.n_tokens,
                "first": reading.window.first,
                "last": reading.window.last,
            }
    status = "judged" if name in view.readings.slices else "not judged yet"
    return {
        "slice": name,
        "status": status,
        "n_tokens": tokens,
        "n_trajectories": trajectories,
        "latest": latest,
    }


def diagnosis_lines(found: dict[str, Any]) -> list[str]:
    """The same for a person: plain text, safe to print whatever the run holds."""
    where = (
        f"steps {found['first_step']} to {found['last_step']}" if found["num_steps"] else "no step flushed"
    )
    lines = [
        f"{found['run']}: {found['verdict'].upper()}",
        f"  {found['reason']}",
        f"  {where}, {found['ranks']} rank(s), {found['sessions']} session(s)"
        + (f", last written {_age(found['written_s_ago'])} ago" if found["num_steps"] else ""),
    ]
    lines += alarms_lines(found["alarms"])
    lines += ["", "  slice                  tokens  trajectories  p95 |drift|  p99 |drift| (95 % interval)"]
    lines += [_slice_line(row, found["min_tokens"], found["min_trajectories"]) for row in found["slices"]]
    lines += [f"  not observed: {what}: {why}" for what, why in sorted(found["not_observed"].items())]
    lines.append(f"  judged   {', '.join(found['judged']) or 'no rule'}")
    lines += [f"  not run  {rule}: {why}" for rule, why in found["not_run"].items()]
    lines += taken_lines(found)
    if found["num_failures"]:
        lines.append(f"  MONITOR FAILURES: {found['num_failures']}, last: {found['last_failure']}")
    for count, what in (
        (found["num_torn"], "torn last lines"),
        (found["num_malformed"], "malformed lines skipped"),
        (found["num_superseded"], "steps started over by a later session, not shown"),
    ):
        if count:
            lines.append(f"  {what}: {count}")
    return [escape_controls(line) for line in lines]


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _slice_line(row: dict[str, Any], tokens: int, trajectories: int) -> str:
    p95, p99 = row["latest"].get("drift/p95"), row["latest"].get("drift/p99")
    head = f"  {row['slice']:<20} {row['n_tokens']:>8}  {row['n_trajectories']:>12}"
    if row["status"] != "judged":
        return (
            f"{head}  not judged yet (needs {tokens} tokens from {trajectories} trajectories in one window)"
        )
    if p99 is None:
        return f"{head}  drift not observed"
    interval = f"({p99['low']:.3g} to {p99['high']:.3g})" if math.isfinite(p99["low"]) else ""
    return f"{head}  {p95['value']:>11.4g}  {p99['value']:.4g} {interval}"
