"""Run: one rank's recording of a run, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np

from trimtab.detect.live_incidents import LiveIncidents
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rules.all_rules import RULES
from trimtab.errors import RunError
from trimtab.measure.accumulate import observe
from trimtab.measure.policy.exemplar_tokens import EXEMPLAR_SLICES, exemplar_row
from trimtab.measure.policy.input_dependence import Distinguish
from trimtab.measure.policy.lagged_drift import Probes
from trimtab.measure.sequences.aggregates import may_be_missing
from trimtab.measure.sequences.episode_totals import Episodes
from trimtab.measure.sequences.tool_health import ToolHealth
from trimtab.measure.state.windows import Closed, WindowSet
from trimtab.monitor.batch_measurement import Measuring
from trimtab.monitor.detection import Detection
from trimtab.monitor.flush_arguments import (
    MetricReader,
    OmissionLog,
    StepOrder,
    no_batch,
    step_number,
    unseen,
)
from trimtab.monitor.guarding import RunGuard
from trimtab.monitor.isolation import Isolation, warn_dead
from trimtab.monitor.ranks.merging import ShardParts, run_merge
from trimtab.monitor.run_end import EndRecorder, end_of
from trimtab.monitor.run_inputs import RunInputs
from trimtab.monitor.run_options import RunOptions
from trimtab.monitor.series_recorder import SeriesRecorder
from trimtab.monitor.step_buffer import Intake
from trimtab.monitor.step_rows import StepRows
from trimtab.runs import RunWriter
from trimtab.sinks import SinkFeed
from trimtab.traces.core.tool_call import call_row
from trimtab.types import Alarm, Reading

_MAX_TEXTS = 4_096  # decoded tokens remembered


class Run(RunInputs):
    """One rank's view of a run. `observe` as often as there are batches, then `flush` closes the step.

    Use as a context manager, or call `close`. `alarms` holds what fired so far in this process.
    """

    def __init__(self, writer: RunWriter, windows: WindowSet, options: RunOptions) -> None:
        self.options, self.rules, self.strict = options, options.rules, options.strict
        self.token_text = options.token_text and lru_cache(_MAX_TEXTS)(options.token_text)
        self._isolation = Isolation(options.strict, self._write_error, self._is_logged)
        self._sinks = SinkFeed(options.sinks)
        self._ending = EndRecorder(self)
        self._omissions = OmissionLog()
        self._dead_before = False
        self._known: list[Alarm] | None = None  # alarms before the flushed step; None until it is measured
        self._start(writer, windows)
        self._guard = None
        if options.guard is not None:
            of_run = writer, self._isolation, self._write_action, self._relay
            self._guard = RunGuard(options.guard, *of_run)

    def _start(self, writer: RunWriter, windows: WindowSet) -> None:
        """Begin a session of the run with nothing seen yet."""
        self._ending.begin(writer)
        self.writer, self.windows = writer, windows
        self._sinks.attach(writer)
        self.pipeline = Pipeline((*RULES, *self.rules))
        self._rows = StepRows(writer)
        self._live = LiveIncidents()
        self._detection = Detection(writer, self.pipeline, self._rows, self._live)
        self.probes, self.distinguish = Probes(observe), Distinguish()
        self.episodes, self.tools = Episodes(self.options.requirements), ToolHealth(self.options.requirements)
        self.latest: dict[str, float] = {}
        self.last_step: int | None = None
        self._intake = Intake(self.options.requirements.groups_span_steps)
        self._measuring = Measuring(
            windows, self.episodes, self.options.state_every, self._rows.add_states, self._store_exemplars
        )
        self._series = SeriesRecorder(self.options.requirements.solved_at)
        relays = self.options.relays_decisions
        self._merge = run_merge(self.options.merge, writer, windows, self.tools, relays=relays)
        if self._merge is not None:
            self._detection.all_ranks = self._merge.leads
            self._measuring.hand_over(states=self._merge.takes_states)
        self._fed = set()
        self._metrics, self._order = MetricReader(), StepOrder()
        self._new_step()

    def _new_step(self) -> None:
        self._intake.next_step()
        self._series.next_step()
        self._step_readings = []
        self.pending_tools = []
        self._isolation.failures_now, self._order.note, self._costs = [], {}, dict[str, Any]()

    def flush(
        self,
        step: int,
        metrics: Mapping[str, float] | None = None,
        absent: Mapping[str, str] | None = None,
        duration_s: float | None = None,
    ) -> list[Alarm]:
        """Close the step: measure, detect, write. Returns the alarms that fired at it.

        `metrics`: the trainer's own numbers; the names in `trimtab.measure.sequences.aggregates.TRAINER_KEYS`
        (reward, kl, entropy, grad_norm, loss and what TRL and verl call them) are judged, the others kept.
        `absent`: columns the trainer cannot give, with the reason. `duration_s`: wall seconds of the whole
        step, so that the monitor's cost can be shown as a share of it.
        """
        number, fired = -1, list[Alarm]()
        try:
            number, fired = self._close_step(step, metrics, absent, duration_s)
        finally:  # whatever failed: the other ranks wait for what is decided here
            if self._guard is not None:
                self._guard.after_step(number, lambda: self._detection.situation(self.series.latest))
        self._feed_sinks(number)
        return fired

    def _close_step(self, step: int, metrics: Any, absent: Any, duration_s: Any) -> tuple[int, list[Alarm]]:
        """Return the number of the step, -1 where none was closed, and what fired."""
        numbers: dict[str, float] = {}
        reasons: dict[str, str] = {}
        number, written, self._known = -1, False, None
        with self.isolated("flush"):
            number = self._next_step(step_number(step))
            if number < 0:
                return -1, []
            numbers = self._metrics.read(metrics)
            reasons = self._metrics.reasons(absent)
            self._flush(number, numbers, reasons, duration_s)
            written = True
        if number < 0:
            return -1, []  # what arrived waits for the next good call
        if not written:
            # The step is part of the run all the same, marked as failed.
            with self.isolated("flush"), suppress(OSError):
                self._rows.commit(self._row(number, numbers, reasons, duration_s), self._isolation)
        fired = self.pipeline.alarms[len(self.pipeline.alarms if self._known is None else self._known) :]
        self._new_step()
        if self.dead and not self._dead_before:
            warn_dead(self.writer.folder, self.writer.failure)
        self._dead_before = self.dead
        return number, fired

    def _next_step(self, step: int) -> int:
        self.writer.require_open()
        try:
            return self._order.check(step, self.last_step, not self.strict and not self._intake.counts)
        except RunError:
            self._measuring.drop_step()
            self._new_step()
            raise

    def begin(self, step: int) -> None:
        """Training starts, or starts again, with `step` as its next; going back opens a new session."""
        with self.isolated("begin"):
            if self.last_step is not None and step <= self.last_step:
                self.settle()
                try:
                    writer = RunWriter(self.writer.folder, self.writer.rank)
                except RunError as error:
                    self.writer.mark_failed(str(error))
                    raise
                old = self.windows
                if self._merge is not None:
                    self._merge.close()
                self.writer.end("restarted")
                self.writer.close()
                self._start(writer, WindowSet(old.min_tokens, old.min_trajectories))

    def settle(self) -> None:
        """Write what is still in memory; the run stays open."""
        with self.isolated("settle"):
            readings = self._measuring.settle(self.last_step)
            if self._merge is not None and self.last_step is not None:
                self._detection.judge_merged(self._merge.finish(self.last_step))
            elif self.last_step is not None:
                self._judge(self.last_step, readings)
            self._rows.require_taken()

    def end(self, reason: str = "finished", detail: Mapping[str, Any] | None = None) -> None:
        """Write what is in memory, and how the run ended; it stays open, and later steps make that void."""
        self.settle()
        self._write_end(reason, detail)

    def end_unraised(self, reason: str, detail: Mapping[str, Any]) -> None:
        """Call `end`, and raise nothing even where `strict` would: the process exits."""
        self._isolation.strict = False
        self.end(reason, detail)

    def close(self) -> None:
        """End the run as "finished", where `end` was not called, and close the files."""
        self.end()
        with self.isolated("close"):
            if self._merge is not None:
                self._merge.close()
            self._ending.close()
            self.writer.close()
            self._sinks.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(*end_of(error))
        self.close()

    def _flush(
        self, step: int, metrics: dict[str, float], absent: dict[str, str], duration_s: float | None
    ) -> None:
        if self.last_step is None:
            self._detection.restore(step, self.tools)
        self.last_step, self._known = step, list(self.pipeline.alarms)
        aggregates = self._measuring.aggregates
        numbers = aggregates.add(step, metrics)
        absent = unseen(self._metrics, self._order.note, self._fed, numbers, self._intake.columns) | absent
        if "reward" in numbers:  # RewardTrainer has no reward column, and logs the mean of its scores
            absent.pop("reward", None)
        for name, value in (metrics | numbers).items():
            if not np.isfinite(value) and not may_be_missing(name):
                self._intake.nonfinite[f"metrics/{name}"] = 1
        self._omissions.note(self._intake.columns, {*self._intake.explained, *absent})
        own = list(self._step_readings)
        series, of_step = None, list[Reading]()
        with self.isolated("measure the step's series"):
            rows, of_step = self._series.close(step, numbers.get("grad_norm"), self.pending_tools)
            self._rows.add("series", rows)
            series = self._series.history.latest if rows else None
        num_tokens, num_new = self._intake.total()
        readings = self._measuring.step(step, num_tokens) + own + of_step
        calls = [{**call_row(call), "step": step} for call in self.pending_tools]
        self._costs = self._intake.step_costs(self.pending_tools, duration_s)
        if self._merge is not None:
            self._rows.add("tools", calls)
            parts = self._merge.parts(series, calls, self._measuring.blocks)
            self._close_merged(self._row(step, metrics, absent, duration_s), own, parts)
            return
        self.pipeline.on_step(step, self._intake.nonfinite, self._intake.columns)
        if series is not None:
            self._live.add_series(series)
        done = self.tools.close(step, self.pending_tools, num_new)
        readings += [r for r in done if r.key not in aggregates.logged]
        readings += self._detection.machine.update(step, {self.writer.rank: self._costs})
        self._judge(step, readings, self._known)
        self._rows.add("tools", calls)
        self._rows.require_taken()
        self._rows.commit(self._row(step, metrics, absent, duration_s), self._isolation)

    def _close_merged(self, row: dict[str, Any], own: list[Reading], parts: ShardParts) -> None:
        """Write the open step of this rank, and judge the steps of all ranks that are complete by now."""
        assert self._merge is not None
        try:
            self._rows.require_taken()
            self._rows.commit(row, self._isolation)
        finally:  # a disk that is full is no reason not to judge
            with self.isolated("merge the ranks", cost="merge"):
                self._detection.close_merged(self._merge, row, own, parts)

    def _row(
        self, step: int, metrics: dict[str, float], absent: dict[str, str], duration_s: float | None
    ) -> dict[str, Any]:
        """Return the row of the open step."""
        unseen_now = {} if self._intake.counts else no_batch(self._isolation.failures_now, absent)
        merged = {} if self._merge is None else self._merge.status()
        return {
            **self._rows.head(step),
            "metrics": metrics,
            "not_observed": unseen_now | self._measuring.not_observed | absent,
            "costs_s": self._isolation.take_costs(),
            "failed": bool(self._isolation.failures_now),
            **self._intake.row(),
            **(self._costs or self._intake.door.step_fields(duration_s)),
            **({"merge": merged} if merged else {}),
            **self._sinks.step_fields(),
        }

    def _store_exemplars(self, name: str, done: Closed) -> None:
        if name in EXEMPLAR_SLICES:
            with self.isolated("write exemplars"):  # the decoder is the user's
                rows = exemplar_row(name, done.window, done.states[name], self.token_text)
                self._rows.add("exemplars", rows)

    def _write_action(self, row: dict[str, Any]) -> None:
        self.writer.write("actions", [row])

    def _write_error(self, row: dict[str, Any]) -> None:
        self.writer.write("errors", [{**row, "step": -1 if self.last_step is None else self.last_step}])
