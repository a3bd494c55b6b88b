"""What a run folder says: alarms, verdict and readings, of one rank or merged over all.

One rank's readings and alarms are taken as recorded; the rules are replayed over the readings as well, so
that a lost alarm file hides nothing. Several ranks' states are merged step by step, and windows, readings and
alarms are made from them by the code that made them live.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES, bound
from trimtab.catalog.machine_readings import of_machine
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.detect.rules.rule import Rule, split
from trimtab.detect.step_readings import of_series, step_columns
from trimtab.detect.user_rules.load import header_config, python_weights, rules_of_header
from trimtab.detect.verdict import Evidence, Verdict, judge
from trimtab.distributed.merged_step import merge_steps
from trimtab.errors import RuleError, RunError
from trimtab.measure.all_measures import pair_readings, readings_of
from trimtab.measure.sequences.step_aggregates import StepAggregates
from trimtab.measure.sequences.tool_health import ToolHealth, replay_tools
from trimtab.measure.state.blocks import unpack_states
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.values import recorded
from trimtab.measure.state.windows import WindowSet
from trimtab.measure.tokens.window_shift import WindowShift
from trimtab.report.ranks.machine_view import MachineView
from trimtab.report.readings import ReadingRows, judged_readings
from trimtab.report.run_rows import (
    actions_of_ranks,
    alarms_of_record,
    live_alarms,
    union_of_alarms,
    with_superseded,
)
from trimtab.report.series_arrays import arrays_of_run
from trimtab.report.unobserved import COLUMNS, Unobserved
from trimtab.runs import RunReader
from trimtab.runs.integrity import Integrity, absent_ranks, integrity
from trimtab.runs.records import reading_rows, readings_from_row
from trimtab.types import Reading, Window

Row = dict[str, Any]


class RunView:
    """A run as it stands on disk now; call `refresh` to see what was added since. `extra`: rules to judge it
    by as well."""

    def __init__(self, folder: str | os.PathLike[str], extra: Sequence[Rule] = ()) -> None:
        self.reader = RunReader(folder, complete=True)
        self.folder = Path(folder)
        self.name = self.folder.name or str(self.folder)
        config = self.reader.header.get("config", {})
        self.min_tokens = _count(folder, config, "min_tokens", WINDOW_TOKENS)
        self.min_trajectories = _count(folder, config, "min_trajectories", WINDOW_TRAJECTORIES)
        self._rule_gap = ""
        self._in_python = python_weights(config)
        self.user_rules, self.machine = self._user_rules(config, extra), MachineView()
        self._blocks: list[tuple[Window, dict[str, SliceState]]] | None = None
        self._load()

    def refresh(self) -> bool:
        """Read what was appended; True when there was anything."""
        if not self.reader.poll() and self._integrity() == self.integrity:
            return False
        self._blocks = None
        self._load()
        return True

    def _load(self) -> None:
        self.steps = merge_steps(self.reader.rows("steps"))
        self.unobserved = Unobserved(self.steps, absent_ranks(self.reader))
        self.errors, self.tools, self.exemplars = map(self.reader.rows, ("errors", "tools", "exemplars"))
        self.actions = actions_of_ranks(self.reader)
        self.pipeline = self._pipeline()
        if len(self.reader.ranks) <= 1:
            self.readings = ReadingRows(self.reader.rows("readings"))
            self._replay()
            self.alarms = union_of_alarms(alarms_of_record(self.reader), self.pipeline.alarms)
        else:
            self.readings = ReadingRows(reading_rows(self._merged_readings()))
            self._replay()
            live = live_alarms(self.reader, self._in_python)
            self.alarms = union_of_alarms(live, self.pipeline.alarms)
        self.alarms = with_superseded(self.alarms, self.reader.superseded("alarms"))
        self.integrity = self._integrity()
        self.evidence = self._evidence()
        self.verdict: Verdict = judge(self.alarms, self.evidence)

    @property
    def num_failures(self) -> int:
        """How often the monitor failed, also where it could not write what failed."""
        rows = [row for row in self.reader.rows("steps") if "rank" in row]
        last = {row["rank"]: row.get("num_failures", 0) for row in rows}
        return max(len(self.errors), int(sum(last.values())))

    def series(self, key: str, name: str) -> list[Reading]:
        """Readings of one key and slice in the order of steps."""
        if of_machine(key):
            return self.machine.series(key, name)
        if of_series(key):
            columns = [one for one in self._step_columns if (one.key, one.slice) == (key, name)]
            return [column.reading(i) for column in columns for i in range(column.steps.size)]
        return self.readings.series(key, name)

    @property
    def rules_without_input(self) -> dict[str, str]:
        """User's rules that have not seen a value -> the reading each lacks, in words."""
        lacking = self.pipeline.without_input()
        mine = (rule for rule in self.user_rules if rule.name in lacking)
        return {rule.name: f"no reading {rule.key} in slice {rule.slice} so far" for rule in mine}

    @property
    def slices(self) -> list[str]:
        """Slices that have had tokens, `text` and `post_tool` first."""
        seen: Counter[str] = Counter()
        for row in self.steps:
            for name, counts in row["slices"].items():
                seen[name] += counts["n_tokens"]
        order = {"all": 0, "text": 1, "post_tool": 2}
        return sorted(seen, key=lambda name: (order.get(name, 3), name))

    def totals(self, name: str) -> dict[str, int]:
        """Return the tokens and the trajectories of a slice, over all steps."""
        counts = [row["slices"][name] for row in self.steps if name in row["slices"]]
        return {key: sum(row.get(key, 0) for row in counts) for key in ("n_tokens", "n_trajectories")}

    @property
    def blocks(self) -> list[tuple[Window, dict[str, SliceState]]]:
        """Stored states in the order of steps, merged over ranks, read on first use."""
        if self._blocks is None:
            self._blocks = self.stored()
        return self._blocks

    def stored(
        self,
        first: int = 0,
        last: float = math.inf,
        slices: Collection[str] | None = None,
        parts: Collection[str] | None = None,
    ) -> list[tuple[Window, dict[str, SliceState]]]:
        """Stored states of windows inside steps first..last; with only the slices and parts asked for, which
        is faster."""
        merged: dict[Window, dict[str, SliceState]] = {}
        for row in self.reader.rows("states"):
            window = Window(int(row["first"]), int(row["last"]))
            if window.first < first or window.last > last:
                continue
            into = merged.setdefault(window, {})
            for name, state in unpack_states(row["states"], slices, parts).items():
                into[name] = into[name].merge(state) if name in into else state
        return sorted(merged.items(), key=lambda item: item[0].last)

    @property
    def stored_windows(self) -> list[Window]:
        """Windows of the stored states in the order of steps."""
        collected = {Window(int(row["first"]), int(row["last"])) for row in self.reader.rows("states")}
        return sorted(collected, key=lambda window: window.last)

    def _merged_readings(self) -> list[Reading]:
        windows, aggregates = WindowSet(self.min_tokens, self.min_trajectories), StepAggregates()
        collected: list[Reading] = []
        shift = WindowShift()
        metrics = {int(row["step"]): row["metrics"] for row in self.steps}
        for window, states in self.blocks:
            for step in range(window.first, window.last + 1):
                aggregates.add(step, metrics.get(step, {}))
            closed, pair = windows.add(window.first, window.last, states)
            for name, done in closed:
                readings = readings_of(name, done.window, done.states[name], shift)
                collected += aggregates.apply(readings, done.window) if name == "all" else readings
            if pair is not None:
                collected += pair_readings(pair.window, pair.states)
        rows = self.reader.rows("readings", self.reader.ranks[0])
        collected += [one for row in rows for one in readings_from_row(row) if recorded(one.key)]
        tools = ToolHealth(Requirements.from_config(self.reader.header.get("config", {})))
        replayed = replay_tools(tools, self.steps, self.tools)
        collected += [one for one in replayed if one.key not in aggregates.logged]
        return sorted((replace(one, state=None) for one in collected), key=lambda one: one.step)

    def _user_rules(self, config: Row, extra: Sequence[Rule]) -> tuple[Rule, ...]:
        """The rules of files the run was watched with, and those that are given now."""
        try:
            of_header = rules_of_header(config, f"{self.folder / 'run.json'}")
        except RuleError as error:
            of_header, self._rule_gap = (), f"the run's own rules cannot be judged again: {error}"
        self._live = (*RULES, *of_header)
        known = {rule.name: rule for rule in of_header}
        for rule in extra:
            same = rule.name not in known or header_config([rule]) == header_config([known[rule.name]])
            if rule.name in self._in_python or not same:
                was = f"rule {rule.name!r} was another one when {self.folder} was watched"
                raise RuleError(f"{was}; give the new one another name")
        return (*of_header, *(rule for rule in extra if rule.name not in known))

    def _pipeline(self) -> Pipeline:
        """Rules that judged live keep the budget they had; those added now have their share of the budget
        split over all."""
        python, total = math.fsum(self._in_python.values()), bound("budget")
        pipeline = Pipeline((*RULES, *self.user_rules), _grown(total, (*RULES, *self.user_rules), python))
        pipeline.budgets |= split(self._live, _grown(total, self._live, python))
        return pipeline

    def _replay(self) -> None:
        rules = self.pipeline.rules
        wanted = {(rule.key, rule.slice) for rule in rules}
        wanted |= {(other.key, other.slice) for rule in rules for other in rule.suppressions}
        names = {row["slice"] for row in self.readings.rows}
        wanted |= {(r.key, name) for r in rules if r.slice.endswith("*") for name in names if r.covers(name)}
        self.pipeline.on_steps(self.steps)
        steps, self.step_series = {row["step"] for row in self.steps}, arrays_of_run(self.reader)
        self._step_columns = step_columns(self.step_series, steps)
        self.machine.follow(self.reader, steps)
        own = [*self._step_columns, *self.machine.columns()]
        self.pipeline.on_run([*self.readings.columns(wanted, steps), *own])
        self.pipeline.alarms.sort(key=lambda alarm: alarm.step)

    def _evidence(self) -> Evidence:
        families = {"mismatch", "staleness", "total", "drift", "lagged_drift"}
        observed = self.readings.observed(families)
        seen = {c for row in self.steps for c in row["columns"]}
        why = self.unobserved.never
        arrived = {n for n, columns in COLUMNS.items() if n in families and columns <= seen and n not in why}
        no_tokens = self.unobserved.metrics_only
        last = self.steps[-1] if self.steps else {}
        return Evidence(
            num_steps=len(self.steps),
            observed=frozenset(observed | arrived),
            not_observed={what: reason for what, reason in why.items() if what in families},
            num_windows=len(self.steps) if no_tokens else self.readings.num_windows(families),
            metrics_only=bool(no_tokens),
            no_tokens=no_tokens,
            readings=judged_readings(self.pipeline),
            user_rules=tuple(rule.name for rule in self.user_rules) if no_tokens else (),
            unobserved=self.unobserved.words,
            judged=self.pipeline.judged(),
            pending=self.pipeline.pending(),
            unwatched=tuple(sorted(observed - self._watched())),
            gaps=self.integrity.gaps,
            losses=self.integrity.losses,
            zero_drift=self._zero_drift(),
            min_tokens=self.min_tokens,
            min_trajectories=self.min_trajectories,
            num_failed_steps=sum(bool(row["failed"]) for row in self.steps),
            tail_ready=self.pipeline.ready("tail", "post_tool"),
            aggregate_ready=self.pipeline.ready("aggregate"),
            post_tool_tokens=self.totals("post_tool")["n_tokens"],
            num_failures=self.num_failures,
            last_failed=bool(last.get("failed", False)) or self.integrity.failed_since,
        )

    def _watched(self) -> set[str]:
        """Log-ratios that a rule has judged; the ratio of drift's tails is drift."""
        judged = set(self.pipeline.judged())
        families = {rule.key.split("/")[0] for rule in self.pipeline.rules if rule.name in judged}
        return families | ({"drift"} if "tail_ratio" in families else set())

    def _integrity(self) -> Integrity:
        """Whether the record is whole; a rule file that cannot be judged again is a gap too."""
        whole = integrity(self.reader)
        return replace(whole, gaps=(self._rule_gap, *whole.gaps)) if self._rule_gap else whole

    def _zero_drift(self) -> bool:
        readings = [*self.series("drift/max", "all"), *self.series("drift/max", "post_tool")]
        values = [reading.value for reading in readings if reading.status == "ok"]
        return len(values) >= bound("zero_drift") and max(values) == 0.0

    @property
    def not_observed(self) -> dict[str, str]:
        """Ratio or column -> why steps did not observe it, with their number."""
        return self.unobserved.shown


def _count(folder: str | os.PathLike[str], config: Row, name: str, default: int) -> int:
    value = config.get(name, default)
    if not isinstance(value, int):
        raise RunError(f"{folder}: run.json gives {name} as {value!r}, not as a whole number")
    return value


def load_view(folder: str | os.PathLike[str], extra: Sequence[Rule] = ()) -> RunView:
    """Read a run folder, judged by the rules `extra` as well; RunError, one clear line, where it is none."""
    return RunView(folder, extra)


def _grown(total: float, rules: Sequence[Rule], others: float) -> float:
    """The budget of `rules` alone when others, of the weight `others`, share `total` with them."""
    mine = math.fsum(rule.weight for rule in rules)
    return total * (mine + others) / mine
