"""The diagnosis of agent logs on one screen: the sentence, the alarms, what was not observed, the next
command."""

from __future__ import annotations

from typing import Any

from trimtab.detect.traces.rules import TRACE_RULES
from trimtab.report.alarms import alarm_counts
from trimtab.report.screen import Item, Screen, source_line
from trimtab.traces.core.plural import counted, noted


def trace_screen(diagnosis: dict[str, Any]) -> list[str]:
    """Return `trace_diagnosis` on one screen (`screen.Screen`)."""
    tasks = f" of {counted(diagnosis['num_tasks'], 'task')}" if diagnosis["num_tasks"] else ""
    formats = ", ".join(dict.fromkeys(diagnosis["formats"].values()))
    read = f"{counted(diagnosis['num_episodes'], 'episode')}{tasks}, {counted(diagnosis['num_calls'], 'call')}, format {formats}"  # noqa: E501
    num_bad = diagnosis["num_malformed"]
    bad = [f"{counted(num_bad, 'malformed line')} skipped"] if num_bad else []
    if unread := diagnosis["unread"]:
        share = f"{diagnosis['num_unread']:,} of {counted(diagnosis['num_messages'], 'message')}"
        bad += [f"{share} could not be read:", *(f"  {noted(n, why)}" for why, n in list(unread.items())[:2])]
    if num_silent := diagnosis["num_without_turns"]:
        episodes = counted(diagnosis["num_episodes"], "episode")
        bad.append(f"{num_silent:,} of {episodes} without a message of the agent's")
    if diagnosis["verdict"] == "not judged yet":
        bad += _failures(diagnosis["tools"])
    notes = "; ".join(noted(count, note) for note, count in diagnosis["notes"].items())
    return Screen(
        headline=diagnosis["headline"],
        facts=[source_line(read, ", ".join(diagnosis["logs"])), *bad],
        counts=alarm_counts(diagnosis["findings"]),
        alarms=[Item(_text(finding), finding["advice"]) for finding in diagnosis["findings"]],
        notes=f"{counted(len(diagnosis['notes']), 'note')}: {notes}" if notes else "",
        unseen=_unseen(diagnosis["readings"]),
        next_command=("trimtab", "traces", *_next(diagnosis)),
    ).lines()


def _failures(tools: list[dict[str, Any]]) -> list[str]:
    """The failed calls of each tool, which no rule judges yet."""
    failed = sum(row["failed"] for row in tools)
    if not failed:
        return []
    worst = sorted((row for row in tools if row["failed"]), key=lambda row: -row["failed"])
    named = [f"{row['tool']} {row['failed']:,} of {row['calls']:,}" for row in worst[:3]]
    others = [f"{len(worst) - 3} other tools"] if len(worst) > 3 else []
    return [f"{counted(failed, 'call')} failed: {', '.join([*named, *others])}"]


def _text(finding: dict[str, Any]) -> str:
    where = "" if finding["slice"] == "all" else f" in {finding['slice']}"
    return f"[{finding['severity']}] {finding['rule']}{where}: {finding['what']}: {finding['numbers']}"


def _unseen(readings: list[dict[str, Any]]) -> list[str]:
    """One line a reason, with the rules that cannot fire for it; readings that no rule needs come last."""
    missing: dict[str, list[str]] = {}
    for row in readings:
        if row["status"] != "ok":
            missing.setdefault(row["reason"], []).append(row["key"])
    lines, others = [], []
    for why, keys in missing.items():
        if rules := [rule.name for rule in TRACE_RULES if rule.key in keys]:
            lines.append(f"{', '.join(dict.fromkeys(rules))} cannot fire: {why}")
        else:
            names = (key.partition("/")[2].removesuffix("_frac").replace("_", " ") for key in keys)
            others.append(f"{', '.join(dict.fromkeys(names))}: {why}")
    return lines + others


def _next(diagnosis: dict[str, Any]) -> tuple[str, ...]:
    """Show the first episode that an alarm names; else the whole diagnosis."""
    logs = diagnosis["logs"]
    evidence = (one for finding in diagnosis["findings"] for one in finding["evidence"])
    named = [one["episode"] for one in evidence if one["episode"]]
    if named and "-" not in logs:
        return ("show", *logs, "--episode", named[0])
    return ("diagnose", *logs, "--verbose")
