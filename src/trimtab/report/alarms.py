"""Alarms as JSON types, as counts and as lines for a terminal, for the page and every diagnosis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.detect.rules.all_rules import RULES, STREAM_RULES
from trimtab.detect.rules.rule import Rule
from trimtab.detect.verdict import averages_words
from trimtab.report.screen import listing
from trimtab.traces.core.plural import counted
from trimtab.types import Alarm

_MAX_ALARMS = 20
_INPUTS = {
    "num_clipped": "clipped outliers, to four robust standard deviations",
    "left_out": "left out values that are not finite, not positive where they must be, or rest on too few "
    "tokens",
}


def alarm_payload(alarm: Alarm, user_rules: Iterable[Rule] = ()) -> dict[str, Any]:
    """Return one alarm as JSON types: what happened, since when, in which slice, why it matters, what to do,
    the source."""
    what = rule_summary(alarm, user_rules)
    if alarm.readings:
        reading = alarm.readings[0]
        what += _numbers(alarm)
        if reading.reason:
            what += f" ({reading.reason})"
        if math.isfinite(reading.low):
            tokens = counted(reading.n_tokens, "token")
            what += f" (95 % interval {reading.low:.3g} to {reading.high:.3g}, {tokens})"
    return {
        "rule": alarm.rule, "severity": alarm.severity, "step": alarm.step, "since": alarm.since,
        "cleared": alarm.cleared,
        "slice": alarm.slice, "what": what, "why": alarm.why, "advice": alarm.advice,
        "reference": alarm.reference,
        "hidden": alarm.hidden, "averages": averages_words(alarm),
    }  # fmt: skip


def by_severity(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return alarms in the order in which they are listed: critical, warning, note; each by step."""
    order = ("critical", "warning", "info")
    return sorted(alarms, key=lambda alarm: (order.index(alarm.severity), alarm.step))


def rule_summary(alarm: Alarm, user_rules: Iterable[Rule] = ()) -> str:
    """Return the rule's one line on what happened; its name for a rule that is not known here."""
    texts = {rule.name: rule.what for rule in (*RULES, *user_rules)}
    texts |= {rule.name: rule.what for rule in STREAM_RULES.values()}
    return texts.get(alarm.rule, alarm.rule).replace("{column}", alarm.slice)


def alarm_counts(alarms: Iterable[Mapping[str, Any]]) -> str:
    """Return how many alarms and notes there are, in words.

    >>> alarm_counts([{"severity": "critical", "cleared": 9}, {"severity": "warning"}, {"severity": "info"}])
    '2 alarms (1 critical, 1 cleared), 1 note'
    """
    severities = [(alarm["severity"], alarm.get("cleared")) for alarm in alarms]
    serious = [(severity, cleared) for severity, cleared in severities if severity != "info"]
    num_critical = sum(severity == "critical" for severity, _ in serious)
    num_cleared = sum(cleared is not None for _, cleared in serious)
    parts = [f"{n} {what}" for n, what in ((num_critical, "critical"), (num_cleared, "cleared")) if n]
    text = counted(len(serious), "alarm") + (f" ({', '.join(parts)})" if parts else "")
    num_notes = len(severities) - len(serious)
    return text + (f", {counted(num_notes, 'note')}" if num_notes else "")


def severity_word(severity: str) -> str:
    """Return the word shown for a severity: what is `info` in stored rows is a note."""
    return "note" if severity == "info" else severity


def _numbers(alarm: Alarm) -> str:
    """The value that alarmed and its bound, where there is one; of NaN and infinities their count, if
    several."""
    value = alarm.readings[0].value
    if alarm.rule == "nonfinite":
        return f": {value:.0f} values" if value > 1 else ""
    if alarm.rule == "rank_silent":
        return f" step {alarm.since}"
    return f": {value:.3g}" + (f", bound {alarm.bound:.3g}" if math.isfinite(alarm.bound) else "")


def alarms_lines(alarms: list[dict[str, Any]]) -> list[str]:
    """Return the alarms (`alarm_payload`) in full, an empty line before each; control characters are not
    escaped yet. Beyond `_MAX_ALARMS` they are counted."""
    lines = [line for alarm in alarms[:_MAX_ALARMS] for line in _lines(alarm)]
    if len(alarms) > _MAX_ALARMS:
        lines += ["", f"  and {counted(len(alarms) - _MAX_ALARMS, 'more alarm')} (--json)"]
    if any(alarm["cleared"] is not None for alarm in alarms):
        lines += ["", "  cleared: back within its bound, or by then the level was the run's own"]
    return lines


def input_lines(diagnosis: Mapping[str, Any]) -> list[str]:
    """Return how many values the rules clipped or left out, of a diagnosis with `num_clipped` and
    `left_out`."""
    lines = []
    for name, what in _INPUTS.items():
        counts = sorted(diagnosis[name].items(), key=lambda item: -item[1])
        if counts:
            lines.append(f"{what}: {listing([f'{rule} {count}' for rule, count in counts])}")
    return lines


def rule_lines(diagnosis: Mapping[str, Any]) -> list[str]:
    """Return the rules that judged, and those that still collect their baselines, by their values so far."""
    waiting: dict[int, list[str]] = {}
    for rule, count in sorted(diagnosis["pending"].items(), key=lambda item: -item[1]):
        waiting.setdefault(count, []).append(rule)
    judged = f"{len(diagnosis['judged'])} judged: {', '.join(diagnosis['judged']) or 'none'}"
    values = (f"{', '.join(rules)} ({counted(count, 'value')})" for count, rules in waiting.items())
    count = len(diagnosis["pending"])
    collect = f"{count} still {'collects its baseline' if count == 1 else 'collect their baselines'}"
    return [judged, *([f"{collect}: {'; '.join(values)}"] if waiting else [])]


def _lines(alarm: dict[str, Any]) -> list[str]:
    state = f"cleared at step {alarm['cleared']}" if alarm["cleared"] is not None else "active"
    hidden = [f"    hidden {alarm['averages']}"] if alarm["hidden"] else []
    return [
        "",
        f"  [{severity_word(alarm['severity'])}] {alarm['rule']} in {alarm['slice']}, fired at step "
        f"{alarm['step']}, since {alarm['since']}, {state}",
        f"    what   {alarm['what']}",
        f"    why    {alarm['why']}",
        f"    do     {alarm['advice']}",
        f"    source {alarm['reference']}",
        *hidden,
    ]
