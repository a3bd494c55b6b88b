"""Run: one rank's recording of a run, step by step."""

from __future__ import annotations

import time
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
from trimtab.monitor.flush_arguments import MetricReader, OmissionLog, StepOrder, no_batch, step_number
from trimtab.monitor.guarding import RunGuard
from trimtab.monitor.isolation import Isolation, warn_dead
from trimtab.monitor.run_end import EndRecorder, end_of
from trimtab.monitor.run_inputs import RunInputs
from trimtab.monitor.run_options import LATEST, UNFED, RunOptions
from trimtab.monitor.series_recorder import SeriesRecorder
from trimtab.monitor.step_buffer import Intake
from trimtab.monitor.step_rows import StepRows
from trimtab.runs import RunWriter
from trimtab.sinks import SinkFeed
from trimtab.traces.core.tool_call import call_row
from trimtab.types import Alarm, Reading, TokenBatch

_MAX_TEXTS = 4_096  # decoded tokens remembered


class Run(RunInputs):
    """One rank's view of a run. `observe` as often as there are batches, then `flush` closes the step.

    Use as a context manager, or call `close`. `alarms` holds what fired so far in this process.
    """

    def __init__(self, writer: RunWriter, windows: WindowSet, options: RunOptions) -> None:
        self.options, self.rules, self.strict = options, options.rules, options.strict
        text = options.token_text
        self.token_text = None if text is None else lru_cache(_MAX_TEXTS)(text)
        self._isolation = Isolation(options.strict, self._write_error, self._is_logged)
        self._sinks = SinkFeed(options.sinks)
        self._ending = EndRecorder(self)
        self._omissions = OmissionLog()
        self._dead_before = False
        self._known: list[Alarm] | None = None  # alarms before the flushed step; None until it is measured
        self._start(writer, windows)
        self._guard = None
        if options.guard is not None:
            self._guard = RunGuard(options.guard, writer.rank, self._isolation, self._write_action)

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
        self._fed = set()
        self._metrics, self._order = MetricReader(), StepOrder()
        self._new_step()

    def _new_step(self) -> None:
        self._intake.next_step()
        self._series.next_step()
        self._step_readings = []
        self.pending_tools = []
        self._isolation.failures_now, self._order.note, self._costs = [], {}, dict[str, Any]()

    def observe(self, batch: TokenBatch | None = None, **arrays: Any) -> None:
        """Add one batch to the open step: a `TokenBatch`, or the arguments of `trimtab.token_batch` by name.

        Building the batch here keeps even a malformed one from stopping training: it is counted and reported.
        """
        with self.isolated("observe"):
            taken, fresh = self._intake.add(batch, arrays)
            self._measuring.add(taken, fresh)
            self._series.add(taken)

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
                self._commit(number, numbers, reasons, duration_s)
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

    @property
    def dead(self) -> bool:
        """True while nothing reaches the disk: it is full or fails, or the folder is gone."""
        return bool(self.writer.failure)

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
                self.writer.end("restarted")
                self.writer.close()
                self._start(writer, WindowSet(old.min_tokens, old.min_trajectories))

    def settle(self) -> None:
        """Write what is still in memory; the run stays open."""
        with self.isolated("settle"):
            readings = self._measuring.settle(self.last_step)
            if self.last_step is not None:
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
        absent = self._absent(numbers) | absent
        if "reward" in numbers:  # RewardTrainer has no reward column, and logs the mean of its scores
            absent.pop("reward", None)
        for name, value in (metrics | numbers).items():
            if not np.isfinite(value) and not may_be_missing(name):
                self._intake.nonfinite[f"metrics/{name}"] = 1
        self._omissions.note(self._intake.columns, {*self._intake.explained, *absent})
        self.pipeline.on_step(step, self._intake.nonfinite, self._intake.columns)
        with self.isolated("measure the step's series"):
            rows, of_step = self._series.close(step, numbers.get("grad_norm"), self.pending_tools)
            self._rows.add("series", rows)
            if rows and self.series.latest is not None:
                self._live.add_series(self.series.latest)
            self._step_readings += of_step
        num_tokens, num_new = self._intake.total()
        readings = self._measuring.step(step, num_tokens) + self._step_readings
        done = self.tools.close(step, self.pending_tools, num_new)
        readings += [r for r in done if r.key not in aggregates.logged]
        self.latest |= {f"trimtab/{r.slice}/{r.key}": r.value for r in readings if (r.slice, r.key) in LATEST}
        self._costs = self._intake.step_costs(self.pending_tools, duration_s)
        readings += self._detection.machine.update(step, {self.writer.rank: self._costs})
        self._judge(step, readings, self._known)
        self._rows.add("tools", [{**call_row(call), "step": step} for call in self.pending_tools])
        self._rows.require_taken()
        self._commit(step, metrics, absent, duration_s)

    def _absent(self, numbers: Mapping[str, float]) -> dict[str, str]:
        """What this step cannot show, whatever the trainer says, with the reason."""
        absent = self._metrics.absent() | self._order.note
        absent |= {k: why for k, why in UNFED.items() if k not in self._fed}
        if self.probes.last is None:
            absent["lagged_drift"] = "no probe transcripts were scored"
        if "reward" not in numbers and "reward" not in self._intake.columns:
            absent["reward"] = self._metrics.why_no_reward()
        return absent

    def _judge(self, step: int, readings: list[Reading], known: list[Alarm] | None = None) -> None:
        self._detection.judge(step, readings, known)
        self.latest["trimtab/num_alarms"] = float(len(self.pipeline.alarms))

    def _commit(
        self, step: int, metrics: dict[str, float], absent: dict[str, str], duration_s: float | None
    ) -> None:
        """Write the row of the open step."""
        unseen = {} if self._intake.counts else no_batch(self._isolation.failures_now, absent)
        row = {
            "step": step,
            "session": self.writer.session,
            "rank": self.writer.rank,
            "time": time.time(),
            "metrics": metrics,
            "slices": self._intake.slices(),
            "columns": sorted(self._intake.columns),
            "not_observed": unseen | self._measuring.not_observed | absent,
            "nonfinite": self._intake.nonfinite,
            "costs_s": self._isolation.take_costs(),
            **(self._costs or self._intake.door.step_fields(duration_s)),
            **self._sinks.step_fields(),
        }
        self._rows.commit(row, self._isolation)

    def _store_exemplars(self, name: str, done: Closed) -> None:
        if name in EXEMPLAR_SLICES:
            with self.isolated("write exemplars"):  # the decoder is the user's
                rows = exemplar_row(name, done.window, done.states[name], self.token_text)
                self._rows.add("exemplars", rows)

    def _write_action(self, row: dict[str, Any]) -> None:
        self.writer.write("actions", [row])

    def _is_logged(self, error: BaseException) -> bool:
        return self.dead and isinstance(error, OSError)

    def _write_error(self, row: dict[str, Any]) -> None:
        self.writer.write("errors", [{**row, "step": -1 if self.last_step is None else self.last_step}])
