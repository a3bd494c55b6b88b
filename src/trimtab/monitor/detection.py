"""Detection of one session: readings to alarms and their rows, and the detectors' memory after a resume."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from trimtab.catalog.machine_readings import of_machine
from trimtab.detect.live_incidents import LiveIncidents
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.step_readings import of_series, step_readings
from trimtab.distributed.merged_step import merge_steps
from trimtab.distributed.stragglers import MachineJudge
from trimtab.guard.cause_table import open_alarms
from trimtab.measure.sequences.tool_health import ToolHealth, replay_tools
from trimtab.measure.steps.step_series import StepSeries
from trimtab.monitor.ranks.merging import JudgedStep, RunMerge, ShardParts
from trimtab.monitor.step_rows import StepRows
from trimtab.report.series_arrays import step_series
from trimtab.runs import RunReader, RunWriter
from trimtab.runs.records import alarm_row, reading_rows, readings_from_row
from trimtab.types import Alarm, Incident, Reading

Row = dict[str, Any]

log = logging.getLogger("trimtab")

_LEVELS = {"aggregate/kl": "kl", "kl/theta_ref/k3": "kl", "aggregate/mismatch_kl": "mismatch_kl"}
"""Readings -> the levels they are, as `Guard.after_step` names them."""
_SERIES_LEVELS = {
    "mismatch_kl": "mismatch/kl_k3",
    "ess_frac": "total/sequence_ess_frac",
    "reward": "reward/mean",
}


class Situation(NamedTuple):
    """What a guard decides by."""

    incidents: list[Incident]
    settled: bool  # the detectors have judged, and no alarm that a guard answers is open
    levels: dict[str, float]
    lasts: Callable[[Incident], bool]  # whether the evidence of an incident's cause still stands


class Detection:
    """Feeds the detectors and writes what changed. After a resume they have the baseline they had before."""

    def __init__(self, writer: RunWriter, pipeline: Pipeline, rows: StepRows, live: LiveIncidents) -> None:
        self.writer, self.pipeline, self.rows, self.live = writer, pipeline, rows, live
        self.machine = MachineJudge()
        self.all_ranks = False  # True: readings and series are of all ranks, not of this one
        self._levels: dict[str, float] = {}  # of the last step that was judged
        self._unwritten: list[dict[str, Any]] = []  # rows of alarms that the disk did not take yet

    def judge(self, step: int, readings: list[Reading], known: list[Alarm] | None = None) -> None:
        """Detect on `readings`, write them and what changed since the alarms `known`."""
        known = list(self.pipeline.alarms) if known is None else known
        self.pipeline.on_readings(readings)
        self.live.add_readings(readings)
        self._levels = {
            _LEVELS[r.key] if r.slice == "all" else f"{_LEVELS[r.key]}/{r.slice}": r.value
            for r in readings
            if r.key in _LEVELS and r.status == "ok"
        }
        self._write_changes(step, known)
        stored = [r for r in readings if not (of_series(r.key) or of_machine(r.key))]
        self.rows.add("readings", reading_rows(stored))

    def close_merged(self, merge: RunMerge, row: Row, own: list[Reading], parts: ShardParts) -> None:
        """Hand over the step of this rank that was just written, and judge the merged steps that are complete
        now."""
        merge.take(row, own, parts)
        merge.poll()
        known = list(self.pipeline.alarms)
        for event in merge.silences():
            self.pipeline.on_rank(
                int(row["step"]), event.rank, event.since, silent=event.began, num_steps=event.num_steps
            )
        self._write_changes(int(row["step"]), known)
        self.judge_merged(merge.judged())

    def judge_merged(self, steps: Iterable[JudgedStep]) -> None:
        """Detect on merged steps as on those of one rank."""
        for merged, readings in steps:
            known = list(self.pipeline.alarms)
            self.pipeline.on_step(merged.step, merged.row["nonfinite"], merged.row["columns"])
            if merged.series is not None:
                self.live.add_series(merged.series)
            self.judge(merged.step, readings + self.machine.update(merged.step, merged.of_rank), known)

    def _write_changes(self, step: int, known: list[Alarm]) -> None:
        """Write the alarms that were raised, cleared or reopened since those in `known`."""
        fired = self.pipeline.alarms[len(known) :]
        changes = [
            alarm_row(new, "reopened" if new.cleared is None else "cleared", step)
            for old, new in zip(known, self.pipeline.alarms, strict=False)
            if old != new
        ]
        self._unwritten += [*changes, *(alarm_row(alarm, "fired", step) for alarm in fired)]
        if self.rows.add("alarms", self._unwritten, retried=True):
            self._unwritten = []

    def situation(self, series: StepSeries | None) -> Situation:
        """Return what a guard decides by, at the step of `series`; None where it has none."""
        of_series = {} if series is None else {key: series.get(name) for key, name in _SERIES_LEVELS.items()}
        levels = self._levels | {key: point.value for key, point in of_series.items() if point is not None}
        incidents = self.live.of(self.pipeline.alarms)
        settled = bool(self.pipeline.judged()) and not any(map(open_alarms, incidents))
        return Situation(incidents, settled, levels, self.live.lasts)

    def restore(self, step: int, tools: ToolHealth) -> None:
        """Feed the detectors and `tools` what this rank wrote of the steps before `step`.

        Logs a warning when it wrote later ones too.
        """
        reader, rank = RunReader(self.writer.folder, complete=True), self.writer.rank
        if reader.last_step(rank) is None:
            return
        closed: dict[int, list[Reading]] = {}
        for row in reader.rows("readings", rank):
            closed.setdefault(int(row["step"]), []).extend(readings_from_row(row))
        ranks = None if self.all_ranks else [rank]
        for series in step_series(reader, ranks):
            closed.setdefault(series.step, []).extend(step_readings(series))
            if series.step < step:
                self.live.add_series(series)
        over = [int(row["step"]) for row in reader.rows("steps", rank) if row["step"] >= step]
        if over:
            log.warning(
                "trimtab: %s holds steps up to %d and now starts again at %d; steps %d to %d stay on disk but no view shows "  # noqa: E501
                "them. Give a new folder if this is another run.", self.writer.folder, over[-1], step, over[0], over[-1],  # noqa: E501
            )  # fmt: skip
        of = None if self.all_ranks else rank
        rows = [row for row in reader.rows("steps", of) if row["step"] < step]
        of_ranks: dict[int, dict[int, Row]] = {}
        for row in rows:
            of_ranks.setdefault(row["step"], {})[row.get("rank", rank)] = row
        before = merge_steps(rows)
        replay_tools(tools, before, reader.rows("tools", of))
        for row in before:
            self.pipeline.on_step(row["step"], row["nonfinite"], row["columns"])
            readings = closed.get(row["step"], []) + self.machine.update(row["step"], of_ranks[row["step"]])
            self.pipeline.on_readings(readings)
            self.live.add_readings(readings)
