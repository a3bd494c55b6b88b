"""What a dry run's folder must show, item by item: steps, readings, alarms, tools, time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from trimtab.catalog import bound
from trimtab.detect.rules.rule import Rule
from trimtab.measure.state.log_ratios import SAME_POLICY
from trimtab.preflight.preflight_file import DryRunSection
from trimtab.preflight.section_checks import State
from trimtab.report.alarms import by_severity
from trimtab.report.run_rows import nonfinite_steps
from trimtab.report.run_tables import tools_table
from trimtab.report.run_view import RunView
from trimtab.traces.core.plural import counted

_RATIOS = ("drift", "mismatch", "total", "staleness")


@dataclass(frozen=True)
class Item:
    """One thing that was asked of a dry run."""

    name: str
    state: State
    text: str
    advice: str = ""


def run_items(section: DryRunSection, view: RunView) -> list[Item]:
    """Return the items of a run folder, in the order a person reads them."""
    return [
        _steps(section, view), _monitor(view), _readings(section, view), _rules(view), _alarms(view),
        _tools(section, view), _time(section, view),
    ]  # fmt: skip


def _steps(section: DryRunSection, view: RunView) -> Item:
    count, nonfinite = len(view.steps), nonfinite_steps(view.steps)
    if count < section.steps:
        text = f"{counted(count, 'step')} of {section.steps} flushed"
        return Item("steps", "no-go", text, "Let the command train that many steps, and flush each.")
    if nonfinite:
        text = "NaN or infinity in " + "; ".join(
            f"{what}, first step {at[0]}" for what, at in nonfinite.items()
        )
        return Item("steps", "no-go", text, "Find the first value that is not finite before a longer run.")
    return Item("steps", "go", f"{counted(count, 'step')} flushed")


def _monitor(view: RunView) -> Item:
    gaps = [*view.integrity.gaps, *view.integrity.losses]
    if view.num_failures:
        text = f"the monitor failed {counted(view.num_failures, 'time')}"
        if view.errors:
            text += f", last in {view.errors[-1]['where']}: {view.errors[-1]['error']}"
        return Item(
            "monitor", "no-go", text, "Report it or repair the input it names: it would watch nothing."
        )
    if gaps:
        return Item(
            "monitor", "no-go", f"the record is not whole: {gaps[0]}", "Look at the run's disk and ranks."
        )
    return Item("monitor", "go", "no failure of the monitor")


def _readings(section: DryRunSection, view: RunView) -> Item:
    """Is the run blind, or does it lack what it must observe?"""
    never = {what: why for what, why in view.unobserved.never.items() if SAME_POLICY not in why}
    advice = "Give the missing columns to observe (or beta > 0 under TRL): without them nothing can be seen."
    if view.verdict.word == "blind":
        return Item("readings", "no-go", f"BLIND: {view.verdict.reason}", advice)
    if section.observe is None and view.unobserved.metrics_only:
        text = f"BLIND to tokens: {view.unobserved.metrics_only}"
        return Item("readings", "no-go", text, f"{advice} If averages are enough, write observe: [].")
    lacking = {name: why for name in section.observe or () if (why := _lacks(name, never, view))}
    if lacking:
        text = "; ".join(f"{name} is not observed ({why})" for name, why in lacking.items())
        return Item("readings", "no-go", text, advice)
    seen = [name for name in _RATIOS if name not in view.unobserved.never]
    text = f"observed: {', '.join(seen) or 'averages only'}"
    unseen = [name for name in (*_RATIOS, "entropy", "reward") if name in never]
    return Item("readings", "go", text + (f"; not: {', '.join(unseen)}" if unseen else ""))


def _lacks(name: str, never: dict[str, str], view: RunView) -> str:
    """Why a required reading was observed in no step; empty where it was observed."""
    if name == "tools":
        return "" if view.tools else "no call was recorded; use Run.tool_call, or give tools to the trainer"
    if name in ("reward", "entropy") and any(name in row["metrics"] for row in view.steps):
        return ""
    return never.get(name, "")


def _rules(view: RunView) -> Item:
    """Which rules had a value, wait for one, or can never have one."""
    lacking = view.pipeline.without_input()
    never = {what for what, why in view.unobserved.never.items() if SAME_POLICY not in why}
    rules: Sequence[Rule] = view.pipeline.rules
    barred = [rule for rule in rules if rule.name in lacking and family_of(rule.key) in never]
    have = sum(rule.name not in lacking for rule in rules)
    waiting = len(rules) - have - len(barred)
    text = f"of {counted(len(rules), 'rule')} {have} had a value, {waiting} had none so far"
    if barred:
        families = sorted({family_of(rule.key) for rule in barred})
        text += f", {len(barred)} can never fire for want of {', '.join(families)}"
    return Item("rules", "go", text)


def family_of(key: str) -> str:
    """Return what must be observed for a reading, as the list of what was not observed calls it.

    >>> [family_of(key) for key in ("step/mismatch/p95", "aggregate/entropy", "tail_ratio/p95")]
    ['mismatch', 'entropy', 'drift']
    """
    bare = key.removeprefix("step/").removeprefix("aggregate/").split("/")[0]
    if bare in ("tail_ratio", "ref_logprob", "support"):
        return "drift"  # what these need is the reference's log-probabilities
    known = ("lagged_drift", "mismatch", "staleness", "entropy", "reward")
    return next((name for name in known if bare.startswith(name)), bare)


def _alarms(view: RunView) -> Item:
    loud = by_severity([alarm for alarm in view.alarms if alarm.severity != "info"])
    if not loud:
        notes = len(view.alarms)
        return Item("alarms", "go", "no alarm" + (f", {counted(notes, 'note')}" if notes else ""))
    first = loud[0]
    text = f"{first.severity} {first.rule} at step {first.step} in slice {first.slice}: {first.why}"
    if len(loud) > 1:
        text += f" And {counted(len(loud) - 1, 'more alarm')}."
    return Item("alarms", "no-go", text, first.advice)


def _tools(section: DryRunSection, view: RunView) -> Item:
    table = tools_table(view.tools)
    limit = bound("tool_failure_frac") if section.error_rate is None else section.error_rate
    if not table:
        used = view.totals("post_tool")["n_tokens"] > 0
        text = "tools were called, but no call was recorded: failing tools would go unseen"
        return Item("tools", "go", text if used else "no tool was called")
    calls = sum(row["calls"] for row in table)
    worst = max(table, key=lambda row: row["error_frac"])
    text = f"{counted(calls, 'call')} of {counted(len(table), 'tool')}"
    text += f", {worst['tool']} failed in {worst['error_frac']:.1%}"
    if worst["error_frac"] > limit:
        bad = [
            f"{r['tool']} fails in {r['error_frac']:.0%} of {r['calls']} calls"
            for r in table
            if r["error_frac"] > limit
        ]
        return Item("tools", "no-go", f"{', '.join(bad)}; allowed is {limit:.0%}",
                    "Repair the tool, or show the policy how to call it, before a longer run.")  # fmt: skip
    return Item("tools", "go", text)


def _time(section: DryRunSection, view: RunView) -> Item:
    """Seconds of a step, and the hours of the whole run that they forecast."""
    seconds = step_seconds(view.steps)
    if not seconds:
        state: State = "undecided" if section.max_hours is not None else "go"
        return Item("time", state, "too few steps to time", "Let the dry run train three steps or more.")
    usual, slowest = median(seconds), max(seconds)
    text = f"a step takes {usual:.3g} s, the slowest {slowest:.3g} s"
    if section.steps_planned is None:
        return Item("time", "go", text)
    hours = usual * section.steps_planned / 3600
    late = slowest * section.steps_planned / 3600
    text += f"; {section.steps_planned:,} steps take about {hours:.3g} h, at the slowest {late:.3g} h"
    if section.max_hours is not None and hours > section.max_hours:
        advice = "Fewer steps, smaller batches or more devices; or allow more hours."
        return Item("time", "no-go", f"{text}; allowed are {section.max_hours:g} h", advice)
    return Item("time", "go", text)


def step_seconds(steps: Sequence[dict[str, Any]]) -> list[float]:
    """Return the seconds of each step but the first, which warms up: as stated, else between its records."""
    stated = [row["duration_s"] for row in steps[1:]]
    known = [float(s) for s in stated if isinstance(s, (int, float)) and math.isfinite(s) and s > 0]
    if known:
        return known
    times = [float(row["time"]) for row in steps]
    return [b - a for a, b in pairwise(times) if b > a]
