"""Alarms of a run: raised, suppressed while another reading explains them, cleared and reopened."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision
from trimtab.detect.reading_columns import ReadingColumn
from trimtab.detect.reading_history import History
from trimtab.detect.rules.all_rules import STREAM_RULES
from trimtab.detect.rules.rule import Rule
from trimtab.types import Alarm, Reading, Window

Key = tuple[str, str]
"""A rule's name, and the slice of its alarm."""

RECHECK = 8
"""Steps between checks of whether a suppression still holds."""


@dataclass(frozen=True)
class _Suppressed:
    """An alarm that another reading explained when it fired."""

    decision: Decision
    evidence: Reading
    checked: int  # step of the last check


class AlarmLog:
    """Alarms in the order they were raised."""

    def __init__(self, rules: Iterable[Rule], ready_rules: Callable[[], tuple[int, int] | None]) -> None:
        """Watch the readings that may suppress alarms of `rules`.

        `ready_rules` counts the aggregate rules ready now, and those with values; None where that is not
        known.
        """
        self.ready_rules = ready_rules
        watched = [
            key
            for rule in rules
            for key in (*((s.key, s.slice) for s in rule.suppressions), *(m.key for m in rule.members))
        ]
        self.histories = {key: History() for key in watched}
        self.windows: dict[Key, History] = {}  # (family, slice) -> last and first step of wide windows
        self.columns: dict[Key, ReadingColumn] = {}  # (key, slice) -> readings of a run judged at once
        self.suppressed: dict[Key, _Suppressed] = {}
        self.alarms: list[Alarm] = []
        self.aggregate_fired = False

    def observe(self, reading: Reading) -> None:
        """Note a reading that may explain an alarm, and the window it was measured over."""
        history = self.histories.get((reading.key, reading.slice))
        if history is not None:
            history.add(reading.step, reading.value)
        if reading.window.first < reading.step:
            windows = self.windows.setdefault((_family(reading.key), reading.slice), History())
            if not windows.steps or windows.steps[-1] < reading.step:
                windows.add(reading.step, reading.window.first)

    def transition(self, rule: Rule, reading: Reading, decision: Decision) -> list[Alarm]:
        """Return what is raised now that a detector fired or cleared."""
        key = (rule.name, reading.slice)
        if decision.cleared:
            self.suppressed.pop(key, None)
            self._clear(rule.name, reading.slice, reading.step)
            return []
        if self._alone(rule, decision.since, reading.step):
            self.suppressed[key] = _Suppressed(decision, reading, reading.step)
            return []
        reason = self._explanation(rule, decision.since, reading.step)
        if reason:
            self.suppressed[key] = _Suppressed(decision, reading, reading.step)
        else:
            self.aggregate_fired |= rule.kind == "aggregate" and rule.severity != "info"
        if self._reopen(rule, reading.slice, decision.since, "info" if reason else rule.severity):
            return []
        return self._raise(rule, reading, decision, reason)

    def recheck(self, rule: Rule, reading: Reading) -> list[Alarm]:
        """Return the suppressed alarm in full once nothing explains it any more."""
        key = (rule.name, reading.slice)
        entry = self.suppressed.get(key)
        if entry is None or reading.step - entry.checked < RECHECK:
            return []
        self.suppressed[key] = replace(entry, checked=reading.step)
        since = entry.decision.since
        if self._alone(rule, since, reading.step) or self._explanation(rule, since, reading.step):
            return []
        del self.suppressed[key]
        self._clear(rule.name, reading.slice, reading.step)
        self.aggregate_fired |= rule.kind == "aggregate" and rule.severity != "info"
        return self._raise(rule, reading, entry.decision, "")

    def stream(self, name: str, column: str, step: int, decision: Decision, value: float) -> list[Alarm]:
        """Return what is raised now that a check of the step stream fired or cleared."""
        rule = STREAM_RULES[name]
        if decision.cleared:
            self._clear(name, column, step)
            return []
        key = "nonfinite/count" if name == "nonfinite" else "silence/steps"
        evidence = Reading(key, step, Window(decision.since, step), column, float(value), 0, 0)
        alarm = Alarm(
            name, step, decision.since, rule.severity, column, (evidence,), decision.bound, rule.why,
            rule.advice, rule.reference,
        )  # fmt: skip
        self.alarms.append(alarm)
        return [alarm]

    def _explanation(self, rule: Rule, since: int, step: int) -> str:
        """Return how another reading explains the alarm; empty when none does."""
        for condition in rule.suppressions:
            if step - since + 1 < condition.min_steps:
                continue
            history = self.histories[(condition.key, condition.slice)]
            if condition.settled and history.settled(step):
                return f"{condition.key} has risen and stands at its best"
            score = history.moved(since, step, condition.recent)
            if condition.sign * score > condition.min_score:
                return f"{condition.key} {'rose' if condition.sign > 0 else 'fell'} with it"
            if condition.absent and math.isnan(score):
                return f"there is too little of {condition.key} to compare with"
        return ""

    def _alone(self, rule: Rule, since: int, step: int) -> bool:
        """Is it a composite reading of which fewer than two members moved?"""
        return bool(rule.members) and len(self._moved(rule, since, step)) < 2

    def _moved(self, rule: Rule, since: int, step: int) -> list[str]:
        """Return the members of a composite reading that moved the bad way, with their directions."""
        moved = []
        for member in rule.members:
            score = self.histories[member.key].moved(since, step, int(bound("joint_recent")))
            if member.sign * score > bound("joint_member"):
                moved.append(f"{member.key[0]} {'up' if member.sign > 0 else 'down'}")
        return moved

    def _began(self, rule: Rule, where: str, since: int) -> int:
        """Return the first step of the window that closed at step `since`: the change may have begun there.

        The windows of a composite reading are those of its members.
        """
        keys = {member.key for member in rule.members} or {(rule.key, where)}
        starts = [since]
        for key, name in keys:
            windows, column = self.windows.get((_family(key), name)), self.columns.get((key, name))
            if column is not None and column.rows:
                i = int(column.steps.searchsorted(since))
                if i < column.steps.size and column.steps[i] == since:
                    starts.append(column.reading(i).window.first)
            elif windows is not None:
                i = bisect_left(windows.steps, since)
                if i < len(windows.steps) and windows.steps[i] == since:
                    starts.append(int(windows.values[i]))
        return min(starts)

    def _raise(self, rule: Rule, reading: Reading, decision: Decision, reason: str) -> list[Alarm]:
        """Append an alarm, information only where there is a `reason` for it."""
        evidence = replace(reading, state=None)
        ready = self.ready_rules() if rule.kind == "tail" else None
        nobody = ready is not None and ready[0] == 0  # aggregate rules that cannot fire yet say nothing
        since = self._began(rule, reading.slice, decision.since)
        if math.isfinite(decision.fitted):  # over several values: the last alone may lie within the bound
            evidence = replace(
                evidence, value=rule.raw(decision.fitted), low=math.nan, high=math.nan,
                reason=f"level over steps {since} to {reading.step}",
            )  # fmt: skip
        if rule.members and not reason:
            moved = ", ".join(self._moved(rule, decision.since, reading.step))
            evidence = replace(evidence, reason=f"{evidence.reason}: {moved}".removeprefix(": "))
        alarm = Alarm(
            rule=rule.name, step=reading.step, since=since, slice=reading.slice,
            readings=(evidence,), severity="info" if reason else rule.severity,
            bound=rule.raw(decision.bound),
            why=f"{reason}, so this is information only. {rule.why}" if reason else rule.why,
            advice=rule.advice, reference=rule.reference, heard=ready,
            hidden=rule.kind == "tail" and not (self.aggregate_fired or nobody) and rule.severity != "info",
        )  # fmt: skip
        self.alarms.append(alarm)
        return [alarm]

    def _reopen(self, rule: Rule, where: str, since: int, severity: str) -> bool:
        """Reopen the last alarm of this rule if the evidence reaches back to it; return whether it did.

        Such evidence is the same movement over a longer window.
        """
        for i in range(len(self.alarms) - 1, -1, -1):
            last = self.alarms[i]
            if (last.rule, last.slice) == (rule.name, where):
                same = last.cleared is not None and since <= last.step and severity == last.severity
                if same:
                    self.alarms[i] = replace(last, cleared=None)
                return same
        return False

    def _clear(self, name: str, where: str, step: int) -> None:
        for i in range(len(self.alarms) - 1, -1, -1):
            alarm = self.alarms[i]
            if alarm.rule == name and alarm.slice == where and alarm.cleared is None:
                self.alarms[i] = replace(alarm, cleared=step)
                return


def _family(key: str) -> str:
    return key.split("/")[0]
