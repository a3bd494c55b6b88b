"""The alarms of a run: what is raised, excused while another reading explains it, raised in full after all, cleared and opened again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from trimtab.catalog import bound
from trimtab.detect.detectors.base import Decision
from trimtab.detect.reading_history import History
from trimtab.detect.rules.all_rules import STREAM_RULES
from trimtab.detect.rules.rule import Rule
from trimtab.types import Alarm, Reading, Window

Place = tuple[str, str]
"""A rule's name, and the slice it speaks of."""

RECHECK = 8
"""Steps between looks at whether an excuse still holds."""


@dataclass(frozen=True)
class _Excused:
    """An alarm that another reading explained when it fired."""

    decision: Decision
    evidence: Reading
    looked: int


class AlarmLog:
    """`alarms` in the order they were raised. `histories`: the readings that excuse alarms of these rules.

    `heard`: how many aggregate rules are ready to speak now, and how many have values; None where that is not known.
    """

    def __init__(self, rules: Iterable[Rule], heard: Callable[[], tuple[int, int] | None]) -> None:
        self.heard = heard
        asked = [
            place
            for rule in rules
            for place in (*((e.key, e.slice) for e in rule.suppressions), *(m.key for m in rule.members))
        ]
        self.histories = {place: History() for place in asked}
        self.excused: dict[Place, _Excused] = {}
        self.alarms: list[Alarm] = []
        self.aggregate_fired = False

    def edge(self, rule: Rule, reading: Reading, decision: Decision) -> list[Alarm]:
        """An alarm starts or ends: what is raised now."""
        place = (rule.name, reading.slice)
        if decision.cleared:
            self.excused.pop(place, None)
            self._clear(rule.name, reading.slice, reading.step)
            return []
        if self._alone(rule, decision.since, reading.step):
            self.excused[place] = _Excused(decision, reading, reading.step)
            return []
        excuse = self._excuse(rule, decision.since, reading.step)
        if excuse:
            self.excused[place] = _Excused(decision, reading, reading.step)
        else:
            self.aggregate_fired |= rule.kind == "aggregate" and rule.severity != "info"
        if self._open_again(rule, reading.slice, decision.since, "info" if excuse else rule.severity):
            return []
        alarm = self._alarm(rule, reading, decision, excuse)
        self.alarms.append(alarm)
        return [alarm]

    def lapsed(self, rule: Rule, reading: Reading) -> list[Alarm]:
        """The alarm in full once nothing explains it any more."""
        place = (rule.name, reading.slice)
        held = self.excused.get(place)
        if held is None or reading.step - held.looked < RECHECK:
            return []
        self.excused[place] = replace(held, looked=reading.step)
        since = held.decision.since
        if self._alone(rule, since, reading.step) or self._excuse(rule, since, reading.step):
            return []
        del self.excused[place]
        self._clear(rule.name, reading.slice, reading.step)
        self.aggregate_fired |= rule.kind == "aggregate" and rule.severity != "info"
        alarm = self._alarm(rule, reading, held.decision, "")
        self.alarms.append(alarm)
        return [alarm]

    def _excuse(self, rule: Rule, since: int, step: int) -> str:
        """The reading that moves along and explains the alarm, in words; empty when none does."""
        for excuse in rule.suppressions:
            if step - since + 1 < excuse.min_steps:
                continue
            history = self.histories[(excuse.key, excuse.slice)]
            if excuse.settled and history.settled(step):
                return f"{excuse.key} has risen and stands at its best"
            deviate = history.moved(since, step, excuse.recent)
            if excuse.sign * deviate > excuse.min_score:
                return f"{excuse.key} {'rose' if excuse.sign > 0 else 'fell'} with it"
            if excuse.absent and math.isnan(deviate):
                return f"there is too little of {excuse.key} to compare with"
        return ""

    def _alone(self, rule: Rule, since: int, step: int) -> bool:
        """Is it a joint reading of which fewer than two members moved? What one does is told by its own rules."""
        return bool(rule.members) and len(self._moved(rule, since, step)) < 2

    def _moved(self, rule: Rule, since: int, step: int) -> list[str]:
        """Members of a joint reading that moved since then the way the rule fears, in words."""
        found = []
        for member in rule.members:
            deviate = self.histories[member.key].moved(since, step, int(bound("joint_recent")))
            if member.sign * deviate > bound("joint_member"):
                found.append(f"{member.key[0]} {'up' if member.sign > 0 else 'down'}")
        return found

    def _alarm(self, rule: Rule, reading: Reading, decision: Decision, excuse: str) -> Alarm:
        evidence = replace(reading, state=None)
        heard = self.heard() if rule.kind == "tail" else None
        silent = heard is not None and heard[0] == 0  # no rule that could speak: its silence is no calm
        if math.isfinite(
            decision.fitted
        ):  # a level over several values: the last one alone may lie under the bound
            evidence = replace(
                evidence, value=rule.raw(decision.fitted), low=math.nan, high=math.nan,
                reason=f"level over steps {decision.since} to {reading.step}",
            )  # fmt: skip
        if rule.members and not excuse:
            moved = ", ".join(self._moved(rule, decision.since, reading.step))
            evidence = replace(evidence, reason=f"{evidence.reason}: {moved}".removeprefix(": "))
        return Alarm(
            rule=rule.name,
            step=reading.step,
            since=decision.since,
            severity="info" if excuse else rule.severity,
            slice=reading.slice,
            readings=(evidence,),
            bound=rule.raw(decision.bound),
            why=f"{excuse}, so this is information only. {rule.why}" if excuse else rule.why,
            advice=rule.advice,
            reference=rule.reference,
            hidden=rule.kind == "tail" and not (self.aggregate_fired or silent) and rule.severity != "info",
            heard=heard,
        )

    def stream(self, name: str, column: str, step: int, decision: Decision, value: float) -> list[Alarm]:
        """The same for a rule on the step stream."""
        rule = STREAM_RULES[name]
        if decision.cleared:
            self._clear(name, column, step)
            return []
        key = "nonfinite/count" if name == "nonfinite" else "silence/steps"
        evidence = Reading(key, step, Window(decision.since, step), column, float(value), 0, 0)
        alarm = Alarm(
            name, step, decision.since, rule.severity, column, (evidence,), decision.bound, rule.why, rule.advice,
            rule.reference,
        )  # fmt: skip
        self.alarms.append(alarm)
        return [alarm]

    def _open_again(self, rule: Rule, where: str, since: int, severity: str) -> bool:
        """Evidence that reaches back to the last alarm of this rule is the same movement, seen over a longer window: that alarm goes on."""
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
