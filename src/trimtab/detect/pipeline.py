"""Readings in, alarms out: the detectors of one run, fed live, on resume and by the views with the same code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from trimtab.detect.detector import Decision, Detector
from trimtab.detect.presence import Nonfinite, Silence
from trimtab.detect.rules import RULES, STREAM_RULES, Rule
from trimtab.records import Alarm, Reading, Severity, Window

__all__ = ["Pipeline"]


class Pipeline:
    """Holds one detector a rule. Feed it each step, then the readings of windows that closed at that step.

    Aggregate rules are asked before tail rules of the same step, so that "hidden" means: no aggregate rule of the same
    budget has fired up to and including now.
    """

    def __init__(self, rules: Iterable[Rule] = RULES) -> None:
        self.rules = sorted(rules, key=lambda rule: rule.kind != "aggregate")
        self.detectors: dict[str, Detector] = {rule.name: rule.detector() for rule in self.rules}
        self.decisions: dict[str, Decision] = {}
        self.seen: Counter[str] = Counter()
        self.nonfinite = Nonfinite()
        self.silence = Silence()
        self.alarms: list[Alarm] = []
        self.aggregate_fired = False

    def on_step(self, step: int, nonfinite: Mapping[str, int], columns: Iterable[str]) -> list[Alarm]:
        """Alarms of the step stream: NaN and infinities a column, columns that stopped arriving."""
        new: list[Alarm] = []
        for column, decision in self.nonfinite.update(step, dict(nonfinite)).items():
            new += self._stream("nonfinite", column, step, decision, nonfinite.get(column, 0))
        for column, decision in self.silence.update(step, columns).items():
            new += self._stream("column_silent", column, step, decision, step - decision.since + 1)
        return new

    def on_readings(self, readings: Iterable[Reading]) -> list[Alarm]:
        """Alarms of the readings that closed at one step."""
        table = {(reading.key, reading.slice): reading for reading in readings}
        new: list[Alarm] = []
        for rule in self.rules:
            reading = table.get((rule.key, rule.slice))
            if reading is None or reading.status != "ok":
                continue
            decision = self.detectors[rule.name].update(
                reading.step, rule.value(reading.value), _se(rule, reading)
            )
            self.decisions[rule.name] = decision
            self.seen[rule.name] += 1
            if decision.fired:
                self.aggregate_fired |= rule.kind == "aggregate"
                new.append(self._alarm(rule, reading, decision))
            elif decision.cleared:
                self._clear(rule.name, rule.slice, reading.step)
        self.alarms += new
        return new

    def ready(self, kind: str) -> bool:
        """Has any rule of this kind finished its baseline, so that its silence means something?"""
        return any(
            self.decisions[r.name].ready for r in self.rules if r.kind == kind and r.name in self.decisions
        )

    def judged(self) -> tuple[str, ...]:
        """Rules whose baseline is complete."""
        return tuple(r.name for r in self.rules if r.name in self.decisions and self.decisions[r.name].ready)

    def pending(self) -> dict[str, int]:
        """Rules that have seen values and are still collecting their baseline -> how many values they have."""
        done = set(self.judged())
        return {r.name: self.seen[r.name] for r in self.rules if r.name in self.seen and r.name not in done}

    def _alarm(self, rule: Rule, reading: Reading, decision: Decision) -> Alarm:
        hidden = rule.kind == "tail" and not self.aggregate_fired
        limit = rule.raw(decision.bound)
        evidence = replace(reading, state=None)
        if math.isfinite(decision.fitted):  # a trend: the last value alone may lie under the bound
            evidence = replace(
                evidence, value=rule.raw(decision.fitted), low=math.nan, high=math.nan, reason=TREND
            )
        return Alarm(
            rule=rule.name,
            step=reading.step,
            since=decision.since,
            severity=rule.severity,
            slice=rule.slice,
            readings=(evidence,),
            bound=limit,
            why=rule.why,
            advice=rule.advice,
            reference=rule.reference,
            hidden=hidden,
        )

    def _stream(self, name: str, column: str, step: int, decision: Decision, value: float) -> list[Alarm]:
        rule = STREAM_RULES[name]
        if decision.cleared:
            self._clear(name, column, step)
            return []
        key = "nonfinite/count" if name == "nonfinite" else "silence/steps"
        evidence = Reading(key, step, Window(decision.since, step), column, float(value), 0, 0)
        severity: Severity = rule.severity
        alarm = Alarm(
            name,
            step,
            decision.since,
            severity,
            column,
            (evidence,),
            decision.bound,
            rule.why,
            rule.advice,
            rule.reference,
        )
        self.alarms.append(alarm)
        return [alarm]

    def _clear(self, name: str, where: str, step: int) -> None:
        for i in range(len(self.alarms) - 1, -1, -1):
            alarm = self.alarms[i]
            if alarm.rule == name and alarm.slice == where and alarm.cleared is None:
                self.alarms[i] = replace(alarm, cleared=step)
                return


TREND = "end of the line through the first windows, which already rose"


def _se(rule: Rule, reading: Reading) -> float:
    """Standard error in the detector's unit, off the reading's 95 % interval; nan without one."""
    low, high = rule.value(reading.low), rule.value(reading.high)
    return (high - low) / (2 * 1.96) if math.isfinite(low) and math.isfinite(high) else math.nan
