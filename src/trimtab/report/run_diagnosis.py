"""The diagnosis of a run: verdict, alarms, what was not observed; as JSON types, on one screen and in
full."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from trimtab.measure.state.log_ratios import SAME_POLICY
from trimtab.report.alarms import (
    alarm_counts,
    alarm_payload,
    alarms_lines,
    by_severity,
    input_lines,
    rule_lines,
)
from trimtab.report.averages import averages_line, averages_of
from trimtab.report.control_characters import escape_controls
from trimtab.report.headline import verdict_payload
from trimtab.report.ranks.machine_view import machine_line, machine_lines
from trimtab.report.run_ending import (
    ending_of,
    identity_facts,
    identity_line,
    identity_of,
    post_mortem_head,
)
from trimtab.report.run_incidents import cause_line, incident_lines, incidents_of
from trimtab.report.run_rows import last_failure, nonfinite_steps
from trimtab.report.run_tables import (
    actions_table,
    cleaned_values,
    exemplar_table,
    guard_line,
    tools_table,
)
from trimtab.report.run_view import RunView
from trimtab.report.screen import Screen, alarm_items, headline_text, note_line, sections, source_line
from trimtab.report.unobserved import COLUMNS, REPEATED, TOKENS
from trimtab.runs.sink_losses import sink_line, sink_losses
from trimtab.traces.core.plural import counted

_LATEST = (
    "drift/p95", "drift/p99", "mismatch/p99", "mismatch/token_ess_frac", "total/p99",
    "ref_logprob/below_5_frac",
)  # fmt: skip


_COSTS = {
    "drift": "growth of the policy-reference gap, above all after tool results,",
    "mismatch": "a gap between the sampler's (vLLM) and the trainer's log-probabilities",
    "total": "a gap between the sampler's policy and the one being trained",
    "staleness": "a policy that moves too far on one batch",
    "reward": "a reward that falls",
    "entropy": "entropy lost in one slice",
    "gradient": "a gradient held by few tokens or by one slice",
    "lagged_drift": "slow change on fixed probe texts",
    "distinguish": "answers that no longer depend on the prompt",
    "cross_scores": "answers that fit any prompt",
    "routing": "experts (MoE) chosen otherwise by sampler and trainer",
}
"""What is not observed -> what then would go unseen; the most important first."""

_ARGUMENTS = (TOKENS, "metrics", "absent", REPEATED)
"""What is not observed because of how `flush` was called; shown first, with its reason."""


def diagnosis(view: RunView, post_mortem: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the verdict, alarms, latest readings by slice, what was not observed and failures as JSON
    types; `post_mortem` of a run that ended badly goes with them."""
    steps = view.steps
    numbers = [row["step"] for row in steps]
    verdict = verdict_payload(view.verdict, view.alarms, numbers, view.user_rules, nonfinite_steps(steps))
    losses = sink_losses(view.reader)
    return {
        "run": str(view.folder),
        **verdict,
        "headline": f"{verdict['headline']} {sink_line(losses)}".rstrip(),
        "sinks": losses,
        "alarms": [alarm_payload(alarm, view.user_rules) for alarm in by_severity(view.alarms)],
        "incidents": incidents_of(view),
        "actions": actions_table(view.actions),
        "guard_line": guard_line(view.actions, view.reader.header["config"]),
        "ending": ending_of(view.reader, steps),
        "post_mortem": post_mortem,
        "identity": identity_of(view.reader.header["config"]),
        "identity_line": identity_line(view.reader.header["config"]),
        "ranks": len(view.reader.ranks),
        "sessions": view.reader.num_sessions,
        "averages": {
            n: {"step": one.step[-1], "value": one.value[-1]} for n, one in averages_of(view).items()
        },
        "judged": list(view.evidence.judged),
        "pending": dict(view.evidence.pending),
        "not_run": view.rules_without_input,
        "num_clipped": view.pipeline.clipped(),
        "left_out": view.pipeline.left_out(),
        "not_observed": view.not_observed,
        "not_observed_steps": {what: view.unobserved.count(what) for what in view.not_observed},
        "min_tokens": view.min_tokens,
        "min_trajectories": view.min_trajectories,
        "slices": [_slice(view, name) for name in view.slices],
        "machine": view.machine.summary(),
        "tools": tools_table(view.tools),
        "exemplars": exemplar_table(view.exemplars),
        "num_failures": view.num_failures,
        "last_failure": last_failure(view.errors, view.reader.rows("steps")),
        "written_s_ago": max(0.0, time.time() - steps[-1]["time"]) if steps else None,
        "gaps": list(view.integrity.gaps),
        "losses": list(view.integrity.losses),
        "num_superseded": view.reader.num_superseded,
        "num_torn": view.reader.num_torn,
        "num_malformed": view.reader.num_malformed,
        "num_repeated": view.reader.num_repeated,
        "cleaned": cleaned_values(view.steps),
    }


def _slice(view: RunView, name: str) -> dict[str, Any]:
    latest: dict[str, Any] = {}
    for key in _LATEST:
        if (reading := view.readings.latest(key, name)) is not None:
            numbers = {field: getattr(reading, field) for field in ("value", "low", "high", "n_tokens")}
            latest[key] = {**numbers, "first": reading.window.first, "last": reading.window.last}
    status = "judged" if name in view.readings.slices else "not judged yet"
    return {"slice": name, "status": status, **view.totals(name), "latest": latest}


def diagnosis_screen(summary: dict[str, Any]) -> list[str]:
    """Return `diagnosis` on one screen (`screen.Screen`)."""
    alarmed = summary["exit_code"] == 1
    path = summary["run"]
    command = ("report", path, "-o", "report.html") if alarmed else ("diagnose", path, "--verbose")
    shown = headline_text(summary["headline"])
    damage = _damage(summary, shown)
    failures = f"MONITOR FAILED {counted(summary['num_failures'], 'time')}{_last_failure(summary)}"
    lead = post_mortem_head(summary["post_mortem"])
    return Screen(
        lead=lead,
        headline=summary["headline"],
        facts=[
            *([f"run {summary['ending']['text']}"] if summary["ending"]["text"] and not lead else []),
            *([failures] if summary["num_failures"] else []),
            *([line] if (line := sink_line(summary["sinks"])) not in shown else []),
            *([line] if (line := cause_line(summary["incidents"])) else []),
            *([summary["guard_line"]] if summary["guard_line"] else []),
            *([line] if (line := machine_line(summary["machine"])) else []),
            source_line(_where(summary), path),
            *([line] if (line := averages_line(summary["averages"])) else []),
            *([summary["identity_line"]] if summary["identity_line"] else []),
            *(["; ".join(damage)] if damage else []),
        ],
        counts=alarm_counts(summary["alarms"]),
        alarms=alarm_items(summary["alarms"]),
        notes=note_line(summary["alarms"]),
        unseen=_unseen(summary),
        next_command=("trimtab", *command),
    ).lines()


def _damage(summary: dict[str, Any], shown: str) -> list[str]:
    """Return what of the folder could not be read, or is not shown; of gaps and losses those that `shown`
    lacks."""
    counts = (
        (summary["num_torn"], "torn last lines"),
        (summary["num_malformed"], "malformed lines skipped"),
        (summary["num_repeated"], "repeated lines skipped"),
        (summary["num_superseded"], "steps started over by a later session, not shown"),
    )
    blind = [f"blind now: {text}" for text in summary["gaps"] if text not in shown]
    cleaned = [f"{what} cut or replaced: {count}" for what, count in summary["cleaned"].items()]
    lost = [text for text in summary["losses"] if text not in shown and not text.endswith("cannot be read")]
    lost = [text if text.endswith("lost") else f"lost: {text}" for text in lost]
    return [f"{what}: {count}" for count, what in counts if count] + cleaned + blind + lost


def _where(summary: dict[str, Any]) -> str:
    if not summary["num_steps"]:
        return "no step flushed"
    return (
        f"steps {summary['first_step']} to {summary['last_step']}, {counted(summary['ranks'], 'rank')}, "
        f"{counted(summary['sessions'], 'session')}, last written {_age(summary['written_s_ago'])} ago"
    )


def _unseen(summary: dict[str, Any]) -> list[str]:
    """One line for each thing that was not observed, with what would go unseen; the most important first."""
    missing, steps = summary["not_observed"], summary["not_observed_steps"]
    same = [what for what, why in missing.items() if SAME_POLICY in why]
    metrics = [
        what for what in missing if what in _ARGUMENTS or what.startswith(("metrics/", "rank ", "ranks "))
    ]
    lines = [f"{what}: {missing[what]}" for what in metrics]
    hidden = {*same, *(COLUMNS if TOKENS in missing else ())}
    for what, cost in _COSTS.items():
        if what in missing and what not in hidden:
            partly = steps[what] < summary["num_steps"]
            where = f" in {steps[what]} of {summary['num_steps']} steps" if partly else ""
            lines.append(f"{what}{where}: {cost} would go unseen")
    known = {*_COSTS, *hidden, *metrics}
    lines += [f"{what}: {why}" for what, why in missing.items() if what not in known]
    lines += [f"rule {rule} cannot fire: {why}" for rule, why in summary["not_run"].items()]
    small = [row["slice"] for row in summary["slices"] if row["status"] != "judged"]
    if small:
        few = f"{counted(len(small), 'slice')} too small to judge: {', '.join(small)}"
        lines.append(f"{few} (needs {_needs(summary)})")
    if same:
        lines.append(f"{', '.join(same)}: nothing is lost, the two policies compared are the same here")
    return lines


def _reason(summary: dict[str, Any]) -> str:
    """The verdict's reason, unless the headline is that sentence already."""
    reason = str(summary["reason"])
    return str(summary["verdict"]) if reason.rstrip(".") in summary["headline"] else reason


def diagnosis_lines(summary: dict[str, Any]) -> list[str]:
    """Return `diagnosis` in full: plain text, safe to print whatever the run holds."""
    lines = [
        *post_mortem_head(summary["post_mortem"]),
        summary["headline"],
        f"  run {summary['ending']['text'] or 'of no rank'}",
        f"  {summary['run']}: {_reason(summary)}",
        f"  {_where(summary)}",
        *([f"  {line}"] if (line := averages_line(summary["averages"])) else []),
    ]
    lines += incident_lines(summary["incidents"])
    lines += alarms_lines(summary["alarms"])
    table = "slice                  tokens  trajectories  p95 |drift|  p99 |drift| (95 % interval)"
    failures = f"MONITOR FAILURES: {summary['num_failures']}{_last_failure(summary)}"
    shown = f"{summary['headline']} {_reason(summary)}"
    lines += sections({
        "what ran": [f"{name}: {text}" for name, text in identity_facts(summary["identity"])],
        "slices": [table, *(_slice_line(row, _needs(summary)) for row in summary["slices"])],
        "ranks, phases and memory": machine_lines(summary["machine"]),
        "not observed": [f"{what}: {why}" for what, why in summary["not_observed"].items()],
        "rules": rule_lines(summary)
        + [f"{rule} cannot fire: {why}" for rule, why in summary["not_run"].items()],
        "values and rows": input_lines(summary)
        + ([failures] if summary["num_failures"] else [])
        + _damage(summary, shown),
    })  # fmt: skip
    return [escape_controls(line) for line in lines]


def _last_failure(summary: dict[str, Any]) -> str:
    return f", last: {summary['last_failure']}" if summary["last_failure"] else ""


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _needs(summary: dict[str, Any]) -> str:
    return f"{summary['min_tokens']} tokens from {summary['min_trajectories']} trajectories in one window"


def _slice_line(row: dict[str, Any], needs: str) -> str:
    p95, p99 = row["latest"].get("drift/p95"), row["latest"].get("drift/p99")
    head = f"{row['slice']:<20} {row['n_tokens']:>8}  {row['n_trajectories']:>12}"
    if row["status"] != "judged":
        return f"{head}  not judged yet (needs {needs})"
    if p99 is None:
        return f"{head}  drift not observed"
    interval = f"({p99['low']:.3g} to {p99['high']:.3g})" if math.isfinite(p99["low"]) else ""
    return f"{head}  {p95['value']:>11.4g}  {p99['value']:.4g} {interval}"
