"""One alarm as JSON types and as lines for a terminal: shared by the page, a run's diagnosis and a log's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.detect.rules.all_rules import RULES, STREAM_RULES
from trimtab.detect.rules.rule import Rule
from trimtab.detect.verdict import averages_words
from trimtab.types import Alarm


def alarm_payload(alarm: Alarm, user_rules: Iterable[Rule] = ()) -> dict[str, Any]:
    """One alarm in words: what happened, since when, where, why it matters, what to do, on whose word."""
    texts = {rule.name: rule.what for rule in (*RULES, *user_rules)} | {
        rule.name: rule.what for rule in STREAM_RULES.values()
    }
    what = texts.get(alarm.rule, alarm.rule).replace("{column}", alarm.slice)
    if alarm.readings:
        reading = alarm.readings[0]
        what += _numbers(alarm)
        if reading.reason:
            what += f" ({reading.reason})"
        if math.isfinite(reading.low):
            what += f" (95 % interval {reading.low:.3g} to {reading.high:.3g}, {reading.n_tokens} tokens)"
    return {
        "rule": alarm.rule, "severity": alarm.severity, "step": alarm.step, "since": alarm.since, "cleared": alarm.cleared,
        "slice": alarm.slice, "what": what, "why": alarm.why, "advice": alarm.advice, "reference": alarm.reference,
        "hidden": alarm.hidden, "averages": averages_words(alarm),
    }  # fmt: skip


def _numbers(alarm: Alarm) -> str:
    """The value that alarmed and its bound, where the rule has one; of values that are no numbers only how many, where they are several."""
    value = alarm.readings[0].value
    if alarm.rule == "nonfinite":
        return f": {value:.0f} values" if value > 1 else ""
    return f": {value:.3g}" + (f", bound {alarm.bound:.3g}" if math.isfinite(alarm.bound) else "")


def alarms_lines(alarms: list[dict[str, Any]]) -> list[str]:
    """The alarms (`alarm_payload`) for a person, an empty line before each; not yet made safe to print."""
    lines = [line for alarm in alarms for line in _lines(alarm)]
    if any(alarm["cleared"] is not None for alarm in alarms):
        lines += ["", "  cleared: back within its bound, or by then the level was the run's own"]
    return lines


def taken_lines(found: Mapping[str, Any]) -> list[str]:
    """What the rules did not take as it was, of a diagnosis with `drawn_in` and `left_out`."""
    said = (
        ("drawn_in", "drawn in wild values, to four deviations"),
        (
            "left_out",
            "left out values that are no number, not positive where they must be, or rest on too little",
        ),
    )
    return [
        f"  {what}: {', '.join(f'{rule} {count}' for rule, count in found[name].items())}"
        for name, what in said
        if found[name]
    ]


def _lines(alarm: dict[str, Any]) -> list[str]:
    state = f"cleared at step {alarm['cleared']}" if alarm["cleared"] is not None else "active"
    hidden = [f"    note   {alarm['averages']}"] if alarm["hidden"] else []
    return [
        "",
        f"  [{alarm['severity']}] {alarm['rule']} in {alarm['slice']}, fired at step {alarm['step']}, since {alarm['since']}, {state}",
        f"    what   {alarm['what']}",
        f"    why    {alarm['why']}",
        f"    do     {alarm['advice']}",
        f"    source {alarm['reference']}",
        *hidden,
    ]
