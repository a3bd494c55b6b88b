"""Readings in, alarms out: the detectors of one run, fed by the same code live, on resume and in reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.detect.alarm_log import AlarmLog, Key
from trimtab.detect.derived_readings import DerivedReadings
from trimtab.detect.detectors.base import Decision, Detector
from trimtab.detect.detectors.cusum import Cusum
from trimtab.detect.detectors.mean_shift.detector import MeanShift
from trimtab.detect.reading_columns import ReadingColumn, standard_error
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import Rule, split
from trimtab.detect.stream_checks import MissingColumn, Nonfinite, scan_steps
from trimtab.detect.whole_series import Event, Judged, Readiness, Series, columns_of
from trimtab.types import Alarm, Reading

_BUILT_IN = {rule.name for rule in RULES}


class Pipeline:
    """Holds one detector a rule and slice.

    Feed it each step, then the readings of windows that closed at that step. `budget` is steps between false
    alarms of all rules together. Aggregate rules judge before tail rules of the same step. So "hidden" means:
    no aggregate rule has fired up to and including now, and some aggregate rule was ready to.
    """

    def __init__(self, rules: Iterable[Rule] = RULES, budget: float | None = None) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.kind != "aggregate"))
        self.budgets = split(self.rules, bound("budget") if budget is None else budget)
        self.by_key: dict[str, list[Rule]] = {}
        for rule in self.rules:
            self.by_key.setdefault(rule.key, []).append(rule)
        self.order = {rule.name: position for position, rule in enumerate(self.rules)}
        self.detectors: dict[Key, Detector] = {}
        self.decisions: dict[Key, Decision] = {}
        self.seen: Counter[Key] = Counter()
        self.alarm_log = AlarmLog(self.rules, self._count_ready)
        self._whole = False
        self._readiness: Readiness | None = None  # with the step in `_step`, of a run judged at once
        self._step = -1
        self._too_few = Counter[str]()
        self.derived = DerivedReadings()
        self.nonfinite = Nonfinite()
        self.silence = MissingColumn()

    @property
    def alarms(self) -> list[Alarm]:
        """All alarms so far, in the order they were raised."""
        return self.alarm_log.alarms

    def on_step(self, step: int, nonfinite: Mapping[str, int], columns: Iterable[str]) -> list[Alarm]:
        """Alarms of the step stream: NaN and infinities a column, columns that stopped arriving."""
        new: list[Alarm] = []
        for column, decision in self.nonfinite.update(step, dict(nonfinite)).items():
            new += self.alarm_log.stream("nonfinite", column, step, decision, nonfinite.get(column, 0))
        for column, decision in self.silence.update(step, columns).items():
            new += self.alarm_log.stream("column_silent", column, step, decision, step - decision.since + 1)
        return new

    def on_rank(self, step: int, rank: int, since: int, *, silent: bool, num_steps: int) -> list[Alarm]:
        """Return the alarm of a rank that is silent from step `since` on; one that is back clears it."""
        decision = Decision(True, silent, silent, not silent, since, bound("rank_silent_steps"))
        return self.alarm_log.stream("rank_silent", f"rank/{rank}", step, decision, num_steps)

    def on_columns(
        self,
        steps: npt.NDArray[np.int64],
        arrived: Mapping[str, npt.NDArray[np.int64]],
        nonfinite: Mapping[str, npt.NDArray[np.int64]],
    ) -> list[Alarm]:
        """Return alarms of the step stream of a whole log at once: what `on_step` would say step by step.

        `arrived`, `nonfinite`: column -> indices in `steps` at which it arrived, or held NaN or infinity.
        """
        events = [
            (at, 0, "nonfinite", column, decision)
            for at, column, decision in self.nonfinite.scan(steps, nonfinite)
        ]
        events += [
            (at, 1, "column_silent", column, decision)
            for at, column, decision in self.silence.scan(steps, arrived)
        ]
        new: list[Alarm] = []
        for at, kind, name, column, decision in sorted(events, key=lambda one: one[:2]):
            step = int(steps[at])
            new += self.alarm_log.stream(
                name, column, step, decision, step - decision.since + 1 if kind else 1
            )
        return new

    def on_steps(self, rows: Sequence[Mapping[str, Any]]) -> list[Alarm]:
        """Return alarms of the stored steps of a run at once: what `on_step` says step by step."""
        new: list[Alarm] = []
        for step, name, column, decision, value in scan_steps(rows, self.nonfinite, self.silence):
            new += self.alarm_log.stream(name, column, step, decision, value)
        return new

    def on_readings(self, readings: Iterable[Reading]) -> list[Alarm]:
        """Alarms of the readings that closed at one step."""
        pairs: list[tuple[Rule, Reading]] = []
        closed = list(readings)
        for reading in [*closed, *self.derived.of_step(closed)]:
            if reading.status != "ok":
                continue
            for rule in self.by_key.get(reading.key, ()):
                if not rule.covers(reading.slice):
                    continue
                if 0 < reading.n_tokens < rule.min_count:
                    self._too_few[rule.name] += 1
                else:
                    pairs.append((rule, reading))
            self.alarm_log.observe(reading)
        pairs.sort(key=lambda pair: self.order[pair[0].name])
        new: list[Alarm] = []
        for rule, reading in pairs:
            key = (rule.name, reading.slice)
            decision = self._detector(rule, reading.slice).update(
                reading.step, rule.value(reading.value), standard_error(rule, reading)
            )
            self.decisions[key] = decision
            self.seen[key] += 1
            if decision.fired or decision.cleared:
                new += self.alarm_log.transition(rule, reading, decision)
            elif key in self.alarm_log.suppressed:
                new += self.alarm_log.recheck(rule, reading)
        return new

    def on_log(self, series: Mapping[tuple[str, str], Series]) -> list[Alarm]:
        """Return alarms of whole series at once, (reading key, slice) -> steps and values.

        The answers are those of `on_readings`, step by step, on readings without intervals. For a pipeline
        that has seen nothing.
        """
        self._whole = True
        columns = [ReadingColumn(*key, *one) for key, one in columns_of(series).items()]
        jobs: list[Judged] = []
        for column in [*columns, *self.derived.of_run(columns)]:
            for rule in self.by_key.get(column.key, ()):
                if column.steps.size and rule.covers(column.slice):
                    jobs.append(Judged(rule, self.order[rule.name], column, rule.values(column.values)))
        return self._judge(jobs, columns)

    def on_run(self, columns: Sequence[ReadingColumn]) -> list[Alarm]:
        """Return alarms of a run's stored readings at once: what `on_readings` says step by step.

        For a pipeline that has seen nothing. `columns`: no two of one key and slice.
        """
        every = [*columns, *self.derived.of_run(columns)]
        jobs: list[Judged] = []
        for column in every:
            for rule in self.by_key.get(column.key, ()):
                if not rule.covers(column.slice):
                    continue
                taken = column.with_enough(rule.min_count)
                self._too_few[rule.name] += column.steps.size - taken.steps.size
                if taken.steps.size:
                    values = np.array([rule.value(value) for value in taken.values.tolist()])
                    jobs.append(Judged(rule, self.order[rule.name], taken, values, taken.errors(rule)))
        jobs.sort(key=lambda job: (job.column.steps[0], job.order, job.column.position(0)))
        self._readiness = Readiness()
        for job in jobs:
            if job.rule.kind == "aggregate" and job.rule.severity != "info":
                self._readiness.add(job, job.rule.detector(self.budgets[job.rule.name]))
        return self._judge(jobs, every)

    def _judge(self, jobs: Iterable[Judged], columns: Iterable[ReadingColumn]) -> list[Alarm]:
        """Run the rules over whole columns; then raise, suppress and clear in the order of steps."""
        for column in columns:
            self.alarm_log.columns[column.key, column.slice] = column
            history = self.alarm_log.histories.get((column.key, column.slice))
            if history is not None:
                history.fill(column.steps, column.values)
        events: list[Event] = []
        for job in jobs:
            key = (job.rule.name, job.column.slice)
            transitions, self.decisions[key] = job.scan(self._detector(job.rule, job.column.slice))
            self.seen[key] += job.column.steps.size
            events += job.events(transitions)
        events.sort(key=lambda event: event[:3])
        new: list[Alarm] = []
        for event in events:
            self._step = event.step
            if event.decision is not None:
                new += self.alarm_log.transition(event.rule, event.reading, event.decision)
            else:
                new += self.alarm_log.recheck(event.rule, event.reading)
        return new

    def ready(self, kind: str, family: str = "") -> bool:
        """Has any rule of this kind (and family) finished its baseline, so that its silence means something?

        Where built-in rules of the kind have values, only they count: a bound of the user's needs few values.
        """
        done, seen = self._ready_rules(), {name for name, _ in self.seen}
        rules = {r.name for r in self.rules if r.kind == kind and family in ("", r.family)}
        return bool((rules & seen & _BUILT_IN or rules) & done)

    def judged(self) -> tuple[str, ...]:
        """Rules on the training whose baseline is complete somewhere."""
        ready = self._ready_rules()
        return tuple(r.name for r in self.rules if r.name in ready and r.kind != "machine")

    def pending(self) -> dict[str, int]:
        """Return rules with values that still collect their baseline -> how many values they have.

        A composite rule has the values of its members, whose scales are learnt first.
        """
        done, waiting = self._ready_rules(), self._learning()
        done |= {rule.name for rule in self.rules if rule.kind == "machine"}
        for (name, _), count in self.seen.items():
            if name not in done:
                waiting[name] = max(waiting[name], count)
        return dict(waiting)

    def without_input(self) -> dict[str, str]:
        """Rules that saw no value at all -> the key of the reading each lacks."""
        seen = {name for name, _ in self.seen} | self._learning().keys()
        return {r.name: r.key for r in self.rules if r.name not in seen}

    def _learning(self) -> Counter[str]:
        """Return composite rules without a value, two of whose members have some -> how many these have."""
        seen, waiting = {name for name, _ in self.seen}, Counter[str]()
        for rule in self.rules:
            joint = self.derived.joints.get(rule.key.removeprefix("joint/")) if rule.members else None
            if joint is None or rule.name in seen or len(joint.first) < 2:
                continue
            if joint.scale is None or len(joint.scale) > 1:
                waiting[rule.name] = max(map(len, joint.first.values()))
        return waiting

    def clipped(self) -> dict[str, int]:
        """Return rules and composite readings -> how many outliers were clipped before they were judged."""
        counts = Counter[str]()
        for (name, _), detector in self.detectors.items():
            if isinstance(detector, (MeanShift, Cusum)):
                counts[name] += detector.num_clipped
        for family, joint in self.derived.joints.items():
            counts[f"joint/{family}"] = joint.num_clipped
        return {name: count for name, count in counts.items() if count}

    def left_out(self) -> dict[str, int]:
        """Return rules -> how many values they left out.

        A value is left out if it is not finite, if it is 0 or less where the rule takes a logarithm or only
        positive ones, or if it rests on fewer tokens or calls than the rule needs.
        """
        counts = self._too_few.copy()
        for (name, _), detector in self.detectors.items():
            counts[name] += detector.num_skipped
        return {rule.name: counts[rule.name] for rule in self.rules if counts[rule.name]}

    def _count_ready(self) -> tuple[int, int] | None:
        """Return how many aggregate rules above info are ready, and how many have values.

        None over a whole log.
        """
        if self._whole:
            return None
        if self._readiness is not None:
            return self._readiness.at(self._step)
        loud = {rule.name for rule in self.rules if rule.kind == "aggregate" and rule.severity != "info"}
        seen = loud & {name for name, _ in self.seen}
        return len(seen & self._ready_rules()), len(seen)

    def _ready_rules(self) -> set[str]:
        return {name for (name, _), decision in self.decisions.items() if decision.ready}

    def _detector(self, rule: Rule, name: str) -> Detector:
        key = (rule.name, name)
        if key not in self.detectors:
            self.detectors[key] = rule.detector(self.budgets[rule.name])
        return self.detectors[key]
