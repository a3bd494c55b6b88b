"""Readings in, alarms out: the detectors of one run, fed live, on resume and by the views with the same code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.catalog import bound
from trimtab.detect.change import Change
from trimtab.detect.detector import Decision, Detector
from trimtab.detect.history import History
from trimtab.detect.joint import FAMILIES, Joint
from trimtab.detect.presence import Nonfinite, Silence
from trimtab.detect.rule import Rule, split
from trimtab.detect.rules import RULES, STREAM_RULES
from trimtab.records import Alarm, Reading, Window

__all__ = ["Pipeline", "Series"]

Place = tuple[str, str]
"""A rule's name, and the slice it speaks of."""

Series = tuple[Sequence[int], Sequence[float]]
"""Steps, in order, and the values there."""

_BUILT_IN = {rule.name for rule in RULES}
_RECHECK = 8  # steps between looks at whether an excuse still holds


@dataclass(frozen=True)
class _Excused:
    """An alarm that another reading explained when it fired."""

    decision: Decision
    evidence: Reading
    looked: int


class Pipeline:
    """Holds one detector a rule and slice. Feed it each step, then the readings of windows that closed at that step.

    `budget`: steps between false alarms of all rules together. Aggregate rules are asked before tail rules of the same step,
    so that "hidden" means: no aggregate rule has fired up to and including now, and some aggregate rule was ready to.
    """

    def __init__(self, rules: Iterable[Rule] = RULES, budget: float | None = None) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.kind != "aggregate"))
        self.budgets = split(self.rules, bound("budget") if budget is None else budget)
        self.by_key: dict[str, list[Rule]] = {}
        for rule in self.rules:
            self.by_key.setdefault(rule.key, []).append(rule)
        self.order = {rule.name: place for place, rule in enumerate(self.rules)}
        self.detectors: dict[Place, Detector] = {}
        self.decisions: dict[Place, Decision] = {}
        self.seen: Counter[Place] = Counter()
        self.histories = {(e.key, e.slice): History() for rule in self.rules for e in rule.excuses}
        self.joints = {family: Joint(members) for family, members in FAMILIES.items()}
        self.excused: dict[Place, _Excused] = {}
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
        pairs: list[tuple[Rule, Reading]] = []
        closed = list(readings)
        for reading in [*closed, *self._joint(closed)]:
            if reading.status != "ok":
                continue
            pairs += [
                (rule, reading) for rule in self.by_key.get(reading.key, ()) if rule.covers(reading.slice)
            ]
            history = self.histories.get((reading.key, reading.slice))
            if history is not None:
                history.add(reading.step, reading.value)
        pairs.sort(key=lambda pair: self.order[pair[0].name])
        new: list[Alarm] = []
        for rule, reading in pairs:
            place = (rule.name, reading.slice)
            decision = self._detector(rule, reading.slice).update(
                reading.step, rule.value(reading.value), _se(rule, reading)
            )
            self.decisions[place] = decision
            self.seen[place] += 1
            if decision.fired or decision.cleared:
                new += self._edge(rule, reading, decision)
            elif place in self.excused:
                new += self._lapsed(rule, reading)
        return new

    def on_log(self, series: Mapping[tuple[str, str], Series]) -> list[Alarm]:
        """Alarms of whole series at once, (reading key, slice) -> steps and values: the answers `on_readings` would give, step
        by step, on readings without intervals. For a pipeline that has seen nothing."""
        for place, history in self.histories.items():
            if place in series:
                steps, values = series[place]
                for step, value in zip(steps, values, strict=True):
                    if math.isfinite(value):
                        history.steps.append(step)
                        history.values.append(value)
        events: list[tuple[int, int, Rule, Reading, Decision | None]] = []
        for (key, name), one in {**series, **self._joint_series(series)}.items():
            for rule in self.by_key.get(key, ()):
                if rule.covers(name):
                    events += self._scan(rule, name, one)
        events.sort(key=lambda event: (event[0], event[1]))
        new: list[Alarm] = []
        for _, _, rule, reading, decision in events:
            if decision is not None:
                new += self._edge(rule, reading, decision)
            elif (rule.name, reading.slice) in self.excused:
                new += self._lapsed(rule, reading)
        return new

    def ready(self, kind: str, family: str = "") -> bool:
        """Has any rule of this kind (and family) finished its baseline, so that its silence means something?

        Where built-in rules of the kind have values, only they count: a bound of the user's is ready at the first value.
        """
        done, seen = self._ready_rules(), {name for name, _ in self.seen}
        asked = {r.name for r in self.rules if r.kind == kind and family in ("", r.family)}
        return bool((asked & seen & _BUILT_IN or asked) & done)

    def judged(self) -> tuple[str, ...]:
        """Rules whose baseline is complete somewhere."""
        ready = self._ready_rules()
        return tuple(r.name for r in self.rules if r.name in ready)

    def pending(self) -> dict[str, int]:
        """Rules that have seen values and are still collecting their baseline -> how many values they have."""
        done, waiting = self._ready_rules(), Counter[str]()
        for (name, _), count in self.seen.items():
            if name not in done:
                waiting[name] = max(waiting[name], count)
        return dict(waiting)

    def without_input(self) -> dict[str, str]:
        """Rules that saw no value at all -> the key of the reading each lacks."""
        seen = {name for name, _ in self.seen}
        return {r.name: r.key for r in self.rules if r.name not in seen}

    def _ready_rules(self) -> set[str]:
        return {name for (name, _), decision in self.decisions.items() if decision.ready}

    def _detector(self, rule: Rule, name: str) -> Detector:
        place = (rule.name, name)
        if place not in self.detectors:
            self.detectors[place] = rule.detector(self.budgets[rule.name])
        return self.detectors[place]

    def _joint(self, readings: list[Reading]) -> list[Reading]:
        """Joint readings of one step."""
        values = {(r.key, r.slice): r.value for r in readings if r.status == "ok"}
        if not values:
            return []
        step = max(reading.step for reading in readings)
        totals = {family: joint.update(values) for family, joint in self.joints.items()}
        return [
            Reading(f"joint/{family}", step, Window(step, step), "all", total, 0, 0)
            for family, total in totals.items()
            if math.isfinite(total)
        ]

    def _joint_series(self, series: Mapping[tuple[str, str], Series]) -> dict[tuple[str, str], Series]:
        """Joint readings of whole series."""
        found: dict[tuple[str, str], Series] = {}
        for family, joint in self.joints.items():
            steps, values = joint.scan(series)
            if steps:
                found[f"joint/{family}", "all"] = steps, values
        return found

    def _scan(
        self, rule: Rule, name: str, series: Series
    ) -> list[tuple[int, int, Rule, Reading, Decision | None]]:
        """Edges of one rule on one series, and the moments at which an excuse is looked at again."""
        steps, values = list(series[0]), rule.values(series[1])
        detector, place = self._detector(rule, name), (rule.name, name)
        self.seen[place] += len(values)
        edges: list[tuple[int, Decision]] = []
        if isinstance(detector, Change):
            edges = detector.scan(steps, values)
            self.decisions[place] = Decision(detector.is_ready, detector.active, since=detector.since)
        else:
            for i, (step, value) in enumerate(zip(steps, values, strict=True)):
                decision = self.decisions[place] = detector.update(step, value)
                if decision.fired or decision.cleared:
                    edges.append((i, decision))
        order = self.order[rule.name]
        found: list[tuple[int, int, Rule, Reading, Decision | None]] = []
        for n, (i, decision) in enumerate(edges):
            found.append((steps[i], order, rule, _bare(rule, name, steps[i], series[1][i]), decision))
            if rule.excuses and decision.fired:
                end = edges[n + 1][0] if n + 1 < len(edges) else len(steps)
                found += [
                    (steps[j], order, rule, _bare(rule, name, steps[j], series[1][j]), None)
                    for j in range(i + 1, end)
                ]
        return found

    def _edge(self, rule: Rule, reading: Reading, decision: Decision) -> list[Alarm]:
        place = (rule.name, reading.slice)
        if decision.cleared:
            self.excused.pop(place, None)
            self._clear(rule.name, reading.slice, reading.step)
            return []
        excuse = self._excuse(rule, decision.since, reading.step)
        if excuse:
            self.excused[place] = _Excused(decision, reading, reading.step)
        else:
            self.aggregate_fired |= rule.kind == "aggregate" and rule.severity != "info"
        alarm = self._alarm(rule, reading, decision, excuse)
        self.alarms.append(alarm)
        return [alarm]

    def _lapsed(self, rule: Rule, reading: Reading) -> list[Alarm]:
        """The alarm in full once nothing explains it any more."""
        place = (rule.name, reading.slice)
        held = self.excused[place]
        if reading.step - held.looked < _RECHECK:
            return []
        self.excused[place] = replace(held, looked=reading.step)
        if self._excuse(rule, held.decision.since, reading.step):
            return []
        del self.excused[place]
        self._clear(rule.name, reading.slice, reading.step)
        self.aggregate_fired |= rule.kind == "aggregate" and rule.severity != "info"
        alarm = self._alarm(rule, reading, held.decision, "")
        self.alarms.append(alarm)
        return [alarm]

    def _excuse(self, rule: Rule, since: int, step: int) -> str:
        """The reading that moves along and explains the alarm, in words; empty when none does."""
        for excuse in rule.excuses:
            if step - since + 1 < excuse.slow:
                continue
            history = self.histories[(excuse.key, excuse.slice)]
            if excuse.settled and history.settled(step):
                return f"{excuse.key} has risen and stands at its best"
            deviate = history.moved(since, step)
            if excuse.sign * deviate > excuse.least:
                return f"{excuse.key} {'rose' if excuse.sign > 0 else 'fell'} with it"
            if excuse.absent and math.isnan(deviate):
                return f"there is too little of {excuse.key} to compare with"
        return ""

    def _alarm(self, rule: Rule, reading: Reading, decision: Decision, excuse: str) -> Alarm:
        evidence = replace(reading, state=None)
        if math.isfinite(
            decision.fitted
        ):  # a level over several values: the last one alone may lie under the bound
            evidence = replace(
                evidence, value=rule.raw(decision.fitted), low=math.nan, high=math.nan,
                reason=f"level over steps {decision.since} to {reading.step}",
            )  # fmt: skip
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
            hidden=rule.kind == "tail" and not self.aggregate_fired and rule.severity != "info",
        )

    def _stream(self, name: str, column: str, step: int, decision: Decision, value: float) -> list[Alarm]:
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

    def _clear(self, name: str, where: str, step: int) -> None:
        for i in range(len(self.alarms) - 1, -1, -1):
            alarm = self.alarms[i]
            if alarm.rule == name and alarm.slice == where and alarm.cleared is None:
                self.alarms[i] = replace(alarm, cleared=step)
                return


def _bare(rule: Rule, name: str, step: int, value: float) -> Reading:
    return Reading(rule.key, step, Window(step, step), name, value, 0, 0)


def _se(rule: Rule, reading: Reading) -> float:
    """Standard error in the detector's unit, off the reading's 95 % interval; nan without one."""
    low, high = rule.value(reading.low), rule.value(reading.high)
    return (high - low) / (2 * 1.96) if math.isfinite(low) and math.isfinite(high) else math.nan
