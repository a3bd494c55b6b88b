"""What a loop may give a run beside batches: probes, updates, gradients, cross scores, tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from trimtab.detect.live_incidents import LiveIncidents
from trimtab.detect.pipeline import Pipeline
from trimtab.guard import Guard
from trimtab.measure.policy.gradients import gradient_values
from trimtab.measure.policy.input_dependence import Distinguish
from trimtab.measure.policy.lagged_drift import Probes
from trimtab.measure.sequences.clean_calls import clean_call
from trimtab.measure.sequences.episode_totals import Episodes
from trimtab.measure.sequences.reencoding import difference
from trimtab.measure.state.values import step_readings
from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.monitor.batch_measurement import Measuring
from trimtab.monitor.detection import Detection
from trimtab.monitor.ending.checkpoint_recorder import CheckpointInputs
from trimtab.monitor.guarding import RunGuard
from trimtab.monitor.isolation import Isolation
from trimtab.monitor.ranks.merging import RunMerge
from trimtab.monitor.ranks.relay import DecisionRelay
from trimtab.monitor.run_end import EndRecorder
from trimtab.monitor.run_options import LATEST
from trimtab.monitor.series_recorder import SeriesRecorder
from trimtab.monitor.step_buffer import Intake
from trimtab.runs import RunWriter
from trimtab.sinks import SinkCounts, SinkFeed
from trimtab.snapshots import Answer, SnapshotPrompt, TranscriptScores, taken_row
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import Alarm, Incident, Reading, TokenBatch


class RunInputs(CheckpointInputs):
    """The methods of `Run` that take something in for the open step, and where they put it."""

    pipeline: Pipeline
    probes: Probes
    distinguish: Distinguish
    episodes: Episodes
    pending_tools: list[ToolCall]
    _fed: set[str]
    _isolation: Isolation
    _intake: Intake
    _series: SeriesRecorder
    _measuring: Measuring
    writer: RunWriter
    _live: LiveIncidents
    _guard: RunGuard | None
    _sinks: SinkFeed
    _ending: EndRecorder
    _detection: Detection
    latest: dict[str, float]
    _merge: RunMerge | None
    _step_readings: list[Reading]

    def observe(self, batch: TokenBatch | None = None, **arrays: Any) -> None:
        """Add one batch to the open step: a `TokenBatch`, or the arguments of `trimtab.token_batch` by name.

        Building the batch here keeps even a malformed one from stopping training: it is counted and reported.
        """
        with self.isolated("observe"):
            taken, fresh = self._intake.add(batch, arrays)
            self._measuring.add(taken, fresh)
            self._series.add(taken)

    @property
    def dead(self) -> bool:
        """True while nothing reaches the disk: it is full or fails, or the folder is gone."""
        return bool(self.writer.failure)

    def _is_logged(self, error: BaseException) -> bool:
        return self.dead and isinstance(error, OSError)

    def _judge(self, step: int, readings: list[Reading], known: list[Alarm] | None = None) -> None:
        self._detection.judge(step, readings, known)
        self.latest |= {f"trimtab/{r.slice}/{r.key}": r.value for r in readings if (r.slice, r.key) in LATEST}
        self.latest["trimtab/num_alarms"] = float(len(self.pipeline.alarms))

    def _relay(self) -> DecisionRelay | None:
        return None if self._merge is None else self._merge.relay

    def isolated(self, where: str, cost: str = "watch") -> AbstractContextManager[None]:
        """Return a context that books time under `cost`, and records its block's failure.

        Training goes on after one.
        """
        return self._isolation.block(where, cost)

    def charge(self, name: str, seconds: float) -> None:
        """Book time spent for the monitor outside of it, kept apart from the watch's own time."""
        self._isolation.charge(name, seconds)

    @property
    def is_busy(self) -> bool:
        """Whether the monitor itself is at work, inside `isolated`; its time belongs to no phase."""
        return self._isolation.is_busy

    @property
    def num_failures(self) -> int:
        """Failures of the monitor itself."""
        return self._isolation.num_failures

    @property
    def alarms(self) -> list[Alarm]:
        """Alarms fired so far, cleared ones included."""
        return self.pipeline.alarms

    @property
    def series(self) -> SeriesHistory:
        """Values of the last steps by series and slice, with standard errors; `flush` adds a step's. With
        `merge` the leading rank has those of all ranks."""
        merged = None if self._merge is None else self._merge.judging
        return self._series.history if merged is None else merged.history

    @property
    def incidents(self) -> list[Incident]:
        """Incidents of this session so far, in the order they began, each with its likely causes."""
        return self._live.of(self.pipeline.alarms)

    def _feed_sinks(self, step: int) -> None:
        """Hand the rows of a step to the sinks, which never waits for them."""
        with self.isolated("record a checkpoint", "checkpoints"):
            self._ending.checkpoints.collect()
        if self._sinks.is_active and step >= 0:
            with self.isolated("feed the sinks", "sinks"):
                self._sinks.step(step, self.incidents)

    def _write_end(self, reason: str, detail: Mapping[str, Any] | None) -> None:
        """Write how the run ended and what its sinks lost, and hand that on to them."""
        counts = self._drain_sinks()
        phase = self._intake.costs.clock.failed_in if reason == "exception" else ""
        broken = {"phase": phase} if phase else {}
        with self.isolated("record a checkpoint", "checkpoints"):
            self._ending.checkpoints.close()
        with self.isolated("end"):
            self.writer.end(reason, {**(detail or {}), **broken, **counts})
        self._drain_sinks()
        self._ending.record(reason)

    def _drain_sinks(self) -> dict[str, Any]:
        """Wait for the sinks, at most until their deadline; return what the end says of them."""
        counts: dict[str, Any] = {}
        if self._sinks.is_active:
            with self.isolated("wait for the sinks", "sinks"):
                counts = self._sinks.drain(self.incidents)
        return counts

    @property
    def sink_counts(self) -> dict[str, SinkCounts]:
        """What became of the steps so far, by sink."""
        return self._sinks.counts()

    @property
    def guard(self) -> Guard | None:
        """The guard, for its `state_dict`; None where the run has none."""
        return None if self._guard is None else self._guard.guard

    def phase(
        self, name: str, *, waits: bool = False, device_sync: bool = False
    ) -> AbstractContextManager[None]:
        """Time a block of the open step, to compare it over ranks (docs/how-to/stragglers.md).

        Times of one name add up. A phase inside another one is not counted in the outer one.

        Args:
            name: of the phase, as `rollout`, `tools`, `reward`, `forward`, `backward`, `optimizer`, `sync`.
            waits: the block waits for other ranks; `sync` always does.
            device_sync: wait for the GPU before both readings of the clock; else kernels are counted in the
                phase that waits for them.

        Returns:
            A context. It costs some microseconds, and raises what its block raises.

        Example:
            with run.phase("rollout"):
                episodes = generate(prompts)
        """
        return self._intake.costs.clock.phase(name, waits=waits, device_sync=device_sync)

    def add_phase_time(self, name: str, seconds: float, *, waits: bool = False) -> None:
        """Add seconds of a phase that were measured elsewhere, as by a worker; `waits` as in `phase`."""
        with self.isolated("phase time"):
            self._intake.costs.clock.add(
                name, self._intake.door.number("phase seconds", seconds, 0.0), waits=waits
            )

    def before_update(self, step: int, grad_norm: float | None = None, ess_frac: float | None = None) -> bool:
        """Return whether the optimizer step of `step` may be made; False: leave it out.

        Args:
            step: number of the step, as `flush` will be called with.
            grad_norm: norm of the whole gradient before clipping, equal on every rank.
            ess_frac: ESS fraction of the batch's raw sequence weights, for the ESS-scaled step.

        Returns:
            True without a guard, while it only observes, and where it fails itself.

        Example:
            if run.before_update(step, grad_norm):
                optimizer.step()
        """
        return self._guard is None or self._guard.before_update(step, grad_norm, ess_frac)

    def observe_update(
        self, before: Any, after: Any, *, of: Literal["batch", "probes"] = "batch", **arrays: Any
    ) -> None:
        """Give the log-probabilities of the same tokens before and after the update of the open step.

        The series `update/p95` and `probe_update/p95` are the size of that one update, in nats. Score both
        with the same code and settings, without dropout.

        Args:
            before: log-probabilities under the weights before the update, in the shape of `loss_mask`.
            after: the same tokens under the weights after it.
            of: what was scored: a sample of the step's own sequences, or fixed transcripts.
            **arrays: `loss_mask`, and any other arguments of `trimtab.token_batch` that tell the slices apart
                (`exists`, `lengths`, `tool_tokens`, `tools`, `source`, `episode_id`).

        Example:
            run.observe_update(before, after, loss_mask=mask, tools=tools)
            run.flush(step)
        """
        with self.isolated("observe update"):
            self._series.add_update(
                of, self._intake.batch(arrays | {"prox_logprobs": before, "logprobs": after})
            )

    def probe(self, step: int, batch: TokenBatch) -> None:
        """Add a scoring of the fixed probe transcripts by the policy at `step`; see `measure.policy`."""
        with self.isolated("probe"):
            self._step_readings += self.probes.update(step, batch)
            if self.probes.last is not None:
                self._fed.add("lagged_drift")

    def snapshot(
        self,
        step: int,
        prompts: Sequence[str | SnapshotPrompt],
        generate: Callable[[Sequence[str]], Sequence[str | Answer]],
        score: Callable[[], TranscriptScores] | None = None,
    ) -> None:
        """Store how the policy behaves after `step` updates (docs/how-to/snapshots.md).

        Args:
            step: updates that the policy has seen; a second snapshot of a step replaces the first.
            prompts: the same ones each time.
            generate: takes the prompts' texts and returns an answer each, greedy or with a fixed seed.
            score: returns the scores of the fixed transcripts.

        Example:
            run.snapshot(step, PROMPTS, generate=lambda texts: [agent.answer(text) for text in texts])
        """
        with self.isolated("take a snapshot", cost="snapshots"):
            self.writer.write("snapshots", [taken_row(step, prompts, generate, score)])

    def gradients(
        self,
        step: int,
        parts: Mapping[str, Any],
        tokens: Mapping[str, int] | None = None,
        gram: bool = False,
    ) -> None:
        """Add the per-trajectory gradients of `step`: slice -> (n, d) vectors, or with `gram` slice -> (n, n)
        Gram matrices. `tokens`: slice -> gradient tokens. One call a step, with all of its trajectories."""
        with self.isolated("gradients"):
            self._fed.add("gradient")
            self._step_readings += step_readings(step, gradient_values(parts, tokens, gram))

    def cross_scores(self, step: int, scores: Any, own: Any) -> None:
        """Add a scoring of R responses under P prompts at `step`: `scores` (R, P) mean log-probabilities a
        token, `own` (R,) the prompt each response answers, counted from 0. See `measure.distinguish`."""
        with self.isolated("cross scores"):
            self._fed.add("cross_scores")
            values = self.distinguish.update(scores, own)
            self._step_readings += step_readings(step, [("all", value, counts) for value, counts in values])

    def tool_call(self, call: ToolCall) -> None:
        """Record one tool call, written at the next flush; what cannot be stored is changed and counted."""
        with self.isolated("tool call"):
            self.pending_tools.append(clean_call(call, self._intake.door))
            if self._guard is not None:
                self._guard.guard.note_call(self.pending_tools[-1])

    def retokenised(self, sampled: Sequence[int], reencoded: Sequence[int]) -> None:
        """Compare a sampled sequence's ids with those its decoded text encodes to."""
        with self.isolated("retokenised"):
            self.episodes.retokenised(difference(sampled, reencoded))
