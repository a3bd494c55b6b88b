"""The composition root: capture -> measure -> detect -> store. No maths here.

House rule 9 lives here and nowhere else: the user's training never dies of our bug. A failure is counted, logged with
its traceback, written to the run and shown by every view; with `strict=True` it is raised. A dead monitor must never
look like "all clear".
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np

from trimtab.capture import join_batches, slice_counts, token_batch
from trimtab.capture.segments import MAX_NAMES
from trimtab.catalog import WINDOW_TOKENS, WINDOW_TRAJECTORIES
from trimtab.detect.pipeline import Pipeline
from trimtab.detect.rule import Rule
from trimtab.detect.rules import RULES
from trimtab.detect.user_rules import header_config, resolve
from trimtab.errors import RunError, TrimtabError
from trimtab.measure.aggregates import TRAINER_KEYS, as_numbers
from trimtab.measure.declared import Declared
from trimtab.measure.distinguish import Distinguish
from trimtab.measure.episodes import Episodes
from trimtab.measure.exemplars import EXEMPLAR_SLICES, exemplar_row
from trimtab.measure.gradients import gradient_values
from trimtab.measure.observe import nonfinite_columns, observe
from trimtab.measure.pack import StateBlocks
from trimtab.measure.probes import Probes
from trimtab.measure.records import step_readings
from trimtab.measure.retokenise import difference
from trimtab.measure.shift import WindowShift
from trimtab.measure.state import Accumulator, SliceState
from trimtab.measure.steps import StepAggregates, observed_columns
from trimtab.measure.table import not_observed, pair_readings, readings_of
from trimtab.measure.tool_health import ToolHealth, replay_tools
from trimtab.measure.windows import Closed, WindowSet
from trimtab.records import Alarm, Reading, TokenBatch
from trimtab.runs import RunReader, RunWriter
from trimtab.runs.rows import alarm_row, reading_rows, readings_from_row
from trimtab.traces.tool_call import ToolCall

__all__ = ["Run", "open_run"]

log = logging.getLogger("trimtab")

LATEST = frozenset(
    (name, key)
    for name in ("text", "post_tool")
    for key in ("drift/p95", "drift/p99", "drift/concentration", "mismatch/p99", "mismatch/token_ess_frac", "total/p99",
                "ref_logprob/below_5_frac", "tail_ratio/p95", "lagged_drift/p95", "entropy/mean")
)  # fmt: skip
"""Slice and key of the readings offered to the user's own tracker as `trimtab/<slice>/<key>`."""

_MAX_EPISODES = 65_536  # trajectories remembered to count each once
_MAX_ERROR_ROWS = 100
_MAX_TEXTS = 4_096  # decoded tokens remembered
_UNFED = {
    "gradient": "none given (Run.gradients)",
    "cross_scores": "none given (Run.cross_scores)",
}


def open_run(
    folder: str | os.PathLike[str],
    *,
    rank: int = 0,
    config: Mapping[str, Any] | None = None,
    strict: bool = False,
    state_every: int = 5,
    min_tokens: int = WINDOW_TOKENS,
    min_trajectories: int = WINDOW_TRAJECTORIES,
    token_text: Callable[[int], str] | None = None,
    required_tools: Sequence[str] = (),
    key_arguments: Mapping[str, str] | None = None,
    required_files: Sequence[str] = (),
    solved_at: float | None = None,
    groups_span_steps: bool = False,
    rules: str | os.PathLike[str] | Sequence[Rule] = (),
) -> Run:
    """Open a run folder, new or to be resumed, for one rank's writing.

    `state_every`: steps a stored histogram covers at first (it doubles with the run's age). `min_tokens` and
    `min_trajectories`: what a slice needs before a window is judged. `token_text`: the text of a token id, written beside
    the worst tokens. `strict` re-raises the monitor's own failures.
    `required_tools` to `groups_span_steps` say what cannot be seen: which tools and files should be used, and so on; see
    `trimtab.measure.declared.Declared`.
    `rules`: rules of your own beside the built-in ones, as `Rule` objects or the path of a YAML file (docs/user-rules.md); the
    false-alarm budget is split over all.
    Raises RunError when the folder is something else, or of a newer format, or a declaration cannot hold; RuleError for a
    rule that cannot be right.
    """
    said = Declared(required_tools, key_arguments or {}, required_files, solved_at, groups_span_steps)
    windows = {"min_tokens": min_tokens, "min_trajectories": min_trajectories}
    added = resolve(rules)
    own = header_config(added)
    writer = RunWriter(folder, rank, {**(config or {}), **windows, **said.config(), **own})
    held = {
        name: value for name, value in writer.header["config"].items() if name in ("rules", "python_rules")
    }
    if held != own:
        log.warning(
            "trimtab: %s was begun with other rules; views judge by those, and show of the new ones what fires from now on. "
            "Give a new folder to have all judged alike.", folder,
        )  # fmt: skip
    return Run(
        writer,
        WindowSet(min_tokens, min_trajectories),
        strict=strict,
        state_every=state_every,
        token_text=token_text,
        declared=said,
        rules=added,
    )


class Run:
    """One rank's view of a run. `observe` as often as there are batches, then `flush` closes the step.

    Use as a context manager, or call `close`. `alarms` holds what fired so far in this process.
    """

    def __init__(
        self,
        writer: RunWriter,
        windows: WindowSet,
        *,
        strict: bool,
        state_every: int,
        token_text: Callable[[int], str] | None = None,
        declared: Declared | None = None,
        rules: tuple[Rule, ...] = (),
    ) -> None:
        self.rules = rules
        self.strict, self.state_every = strict, state_every
        self.token_text = None if token_text is None else lru_cache(_MAX_TEXTS)(token_text)
        self.declared = declared or Declared()
        self.num_failures = 0
        self._costs: dict[str, float] = {}
        self._inner_s: list[float] = []
        self._start(writer, windows)

    def _start(self, writer: RunWriter, windows: WindowSet) -> None:
        """Begin a session of the run with nothing seen yet."""
        self.writer, self.windows = writer, windows
        self.pipeline = Pipeline((*RULES, *self.rules))
        self.probes = Probes()
        self.distinguish = Distinguish()
        self.episodes, self.tools = Episodes(self.declared), ToolHealth(self.declared)
        self._fed: set[str] = set()
        self._num_groups = 0
        self.latest: dict[str, float] = {}
        self.last_step: int | None = None
        self._episodes: OrderedDict[int, None] = OrderedDict()
        self._blocks = StateBlocks(self.state_every)
        self._pending: list[tuple[TokenBatch, Any]] = []
        self._pending_first = -1
        self._why: dict[str, str] = {}
        self._aggregates = StepAggregates()
        self._shift = WindowShift()
        self._tool_table: tuple[str, ...] = ()
        self._new_step()

    @property
    def alarms(self) -> list[Alarm]:
        """Alarms fired so far, cleared ones included."""
        return self.pipeline.alarms

    def observe(self, batch: TokenBatch | None = None, **arrays: Any) -> None:
        """Add one batch to the open step: a `TokenBatch`, or the arguments of `trimtab.token_batch` by name.

        Building the batch here keeps even a malformed one from stopping training: it is counted and reported.
        """
        with self.isolated("observe"):
            made = token_batch(**self._with_tools(arrays)) if batch is None else batch
            for column, count in nonfinite_columns(made).items():
                self._nonfinite[column] = self._nonfinite.get(column, 0) + count
            self._columns |= observed_columns(made)
            self._counts.append(slice_counts(made, fresh := self._fresh(made)))
            made = self._grouped(made)
            self._pending.append((made, fresh))
            self.episodes.add(made, fresh)

    def _with_tools(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Without a declared table the tools with a slice of their own are the first 16 names seen."""
        if arrays.get("tools") is None or arrays.get("tool_names"):
            return arrays
        if len(self._tool_table) < MAX_NAMES:
            seen = [str(name) for names in arrays["tools"] if not isinstance(names, str) for name in names]
            self._tool_table = tuple(dict.fromkeys([*self._tool_table, *seen]))[:MAX_NAMES]
        return {**arrays, "tool_names": self._tool_table}

    def probe(self, step: int, batch: TokenBatch) -> None:
        """Add a scoring of the fixed probe transcripts by the policy as it is at `step`; see `measure.probes`."""
        with self.isolated("probe"):
            self._probe_readings += self.probes.update(step, batch)

    def gradients(
        self,
        step: int,
        parts: Mapping[str, Any],
        tokens: Mapping[str, int] | None = None,
        gram: bool = False,
    ) -> None:
        """Add the per-trajectory gradients of `step`: slice -> (n, d) vectors, of all weights or a small head, or with `gram`
        slice -> (n, n) Gram matrices. `tokens`: slice -> gradient tokens. One call a step, with all of its trajectories; of
        several ranks, views show the first one's. See `measure.gradients`."""
        with self.isolated("gradients"):
            self._fed.add("gradient")
            self._probe_readings += step_readings(step, gradient_values(parts, tokens, gram))

    def cross_scores(self, step: int, scores: Any, own: Any) -> None:
        """Add a scoring of R responses under P prompts at `step`: `scores` (R, P) mean log-probabilities a token, `own` (R,)
        the prompt each response answers, counted from 0. See `measure.distinguish`."""
        with self.isolated("cross scores"):
            self._fed.add("cross_scores")
            found = self.distinguish.update(scores, own)
            self._probe_readings += step_readings(step, [("all", value, counts) for value, counts in found])

    def tool_call(self, call: ToolCall) -> None:
        """Record one tool call; written at the next flush."""
        self.pending_tools.append(call)

    def retokenised(self, sampled: Sequence[int], reencoded: Sequence[int]) -> None:
        """Compare a sampled sequence's ids with those its decoded text encodes to; see `measure.retokenise`."""
        with self.isolated("retokenised"):
            self.episodes.retokenised(difference(sampled, reencoded))

    def charge(self, name: str, seconds: float) -> None:
        """Book time spent for the monitor outside of it, e.g. a reference pass; kept apart from the watch's own time."""
        self._costs[name] = self._costs.get(name, 0.0) + seconds

    def flush(
        self,
        step: int,
        metrics: Mapping[str, float] | None = None,
        absent: Mapping[str, str] | None = None,
        duration_s: float | None = None,
    ) -> list[Alarm]:
        """Close the step: measure, detect, write. Returns the alarms that fired at it.

        `metrics`: the trainer's own numbers; the names in `trimtab.measure.aggregates.TRAINER_KEYS` (reward, kl, entropy,
        grad_norm, loss and what TRL and verl call them) are judged, the others kept. `absent`: columns the trainer cannot give, with the reason. `duration_s`:
        wall seconds of the whole step, so that the monitor's cost can be shown as a share of it.
        """
        fired: list[Alarm] = []
        numbers: dict[str, float] = {}
        written = False
        with self.isolated("flush"):
            numbers = as_numbers(metrics or {})
            fired = self._flush(int(step), numbers, dict(absent or {}), duration_s)
            written = True
        if not written:
            with self.isolated("flush"):  # the step is part of the run all the same, marked as failed
                self.writer.commit(self._step_row(int(step), numbers, {}, duration_s))
        self._new_step()
        return fired

    def begin(self, step: int) -> None:
        """Training starts, or starts again, with `step` as its next; going back opens a new session of the run."""
        if self.last_step is not None and step <= self.last_step:
            self.settle()
            writer, old = RunWriter(self.writer.folder, self.writer.rank), self.windows
            self.writer.close()
            self._start(writer, WindowSet(old.min_tokens, old.min_trajectories))

    def settle(self) -> None:
        """Write what is still in memory; the run stays open."""
        with self.isolated("settle"):
            if self._pending and self.last_step is not None:
                first, states = self._observe_pending()
                self._blocks.add(first, self.last_step, states)
                self._judge(self.last_step, self._close_windows(first, self.last_step, states))
            self.writer.write("states", self._blocks.finish())

    def close(self) -> None:
        """Write what is still in memory and close the files."""
        self.settle()
        with self.isolated("close"):
            self.writer.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_step(self) -> None:
        self._counts: list[dict[str, tuple[int, int]]] = []
        self._nonfinite: dict[str, int] = {}
        self._columns: set[str] = set()
        self._probe_readings: list[Reading] = []
        self.pending_tools: list[ToolCall] = []
        self._failed_now = False
        self._groups: dict[int, int] = {}

    def _flush(
        self, step: int, metrics: dict[str, float], absent: dict[str, str], duration_s: float | None
    ) -> list[Alarm]:
        self.writer.require_open()
        if self.last_step is None:
            self._restore(step)
        elif step <= self.last_step:
            raise RunError(f"flush(step={step}) after step {self.last_step}: steps must increase")
        self.last_step = step
        if self.probes.last is None:
            absent = {"lagged_drift": "no probe transcripts were scored", **absent}
        absent = {what: why for what, why in _UNFED.items() if what not in self._fed} | absent
        numbers = self._aggregates.add(step, metrics)
        if "reward" not in numbers and "reward" not in self._columns:
            absent = {
                "reward": f"no metric named {' or '.join(TRAINER_KEYS['reward'][:3])} (nor by another trainer's name), no reward column",
                **absent,
            }
        for name, value in numbers.items():
            if not np.isfinite(value):
                self._nonfinite[f"metrics/{name}"] = 1
        self.episodes.close(step)
        readings = self._measure(step) + self._probe_readings
        if (
            "all" not in self.windows.clocks and not self._pending
        ):  # a trainer without tokens still has its averages
            readings += self._aggregates.without_tokens()
        done = self.tools.close(step, self.pending_tools, self._new_trajectories())
        readings += [r for r in done if r.key not in self._aggregates.logged]
        self.latest |= {f"trimtab/{r.slice}/{r.key}": r.value for r in readings if (r.slice, r.key) in LATEST}
        fired = self._judge(step, readings, stream=True)
        self.writer.write("tools", [{**asdict(call), "step": step} for call in self.pending_tools])
        self.writer.commit(self._step_row(step, metrics, {**self._why, **absent}, duration_s))
        return fired

    def _judge(self, step: int, readings: list[Reading], stream: bool = False) -> list[Alarm]:
        """Detect on readings, and on the step stream; write readings and alarms. Returns the alarms that fired."""
        known = list(self.pipeline.alarms)
        if stream:
            self.pipeline.on_step(step, self._nonfinite, self._columns)
        self.pipeline.on_readings(readings)
        fired = self.pipeline.alarms[len(known) :]
        self.latest["trimtab/num_alarms"] = float(len(self.pipeline.alarms))
        self.writer.write("readings", reading_rows(readings))
        changes = [
            alarm_row(new, "cleared", step)
            for old, new in zip(known, self.pipeline.alarms, strict=False)
            if old != new
        ]
        self.writer.write("alarms", [*changes, *(alarm_row(alarm, "fired", step) for alarm in fired)])
        return fired

    def _measure(self, step: int) -> list[Reading]:
        """Measure what is pending once it is worth a call: a step with a window's tokens, or the end of a stored block."""
        self._pending_first = step if self._pending_first < 0 else self._pending_first
        ends = self._blocks.ends_at(step)
        if (
            not ends
            and sum(counts.get("all", (0, 0))[0] for counts in self._counts) < self.windows.min_tokens
        ):
            return []
        first, states = self._observe_pending()
        self._blocks.add(first, step, states)
        self.writer.write("states", self._blocks.finish() if ends else [])
        return self._close_windows(first, step, states)

    def _observe_pending(self) -> tuple[int, dict[str, SliceState]]:
        """Measure the pending batches: their first step and the state of each slice. They are pending no more."""
        pending, first = self._pending, self._pending_first
        self._pending, self._pending_first = [], -1
        held = Accumulator()
        for batch, fresh in join_batches(pending):
            self._why = not_observed(states := observe(batch, fresh))
            held.add_all(states)
        self.episodes.fill(held.states)
        return first, held.states

    def _close_windows(self, first: int, step: int, states: dict[str, SliceState]) -> list[Reading]:
        readings: list[Reading] = []
        closed, pair = self.windows.add(first, step, states)
        for name, done in closed:
            self._keep_exemplars(name, done)
            found = readings_of(name, done.window, done.states[name], self._shift)
            readings += self._aggregates.apply(found, done.window) if name == "all" else found
        if pair is not None:
            readings += pair_readings(pair.window, pair.states)
        return readings

    def _keep_exemplars(self, name: str, done: Closed) -> None:
        if name in EXEMPLAR_SLICES:
            with self.isolated("write exemplars"):  # the decoder is the user's
                rows = exemplar_row(name, done.window, done.states[name], self.token_text)
                self.writer.write("exemplars", rows)

    def _grouped(self, batch: TokenBatch) -> TokenBatch:
        """Groups as every measure reads them: one number is one prompt, wherever it comes again in the run.

        A trainer's numbers that may start over at each step are numbered anew; those that span steps are kept.
        """
        if batch.group is None or self.declared.groups_span_steps:
            return batch
        values, inverse = np.unique(batch.group, return_inverse=True)
        for value in values.tolist():
            if value not in self._groups:
                self._groups[value], self._num_groups = self._num_groups, self._num_groups + 1
        return replace(batch, group=np.array([self._groups[v] for v in values.tolist()], np.int64)[inverse])

    def _step_row(
        self,
        step: int,
        metrics: dict[str, float],
        absent: dict[str, str],
        duration_s: float | None,
    ) -> dict[str, Any]:
        costs, self._costs = self._costs, {}  # what follows this row is booked in the next one
        slices: dict[str, dict[str, int]] = {}
        for counts in self._counts:
            for name, (tokens, trajectories) in counts.items():
                row = slices.setdefault(name, {"n_tokens": 0, "n_trajectories": 0})
                row["n_tokens"] += tokens
                row["n_trajectories"] += trajectories
        return {
            "step": step,
            "session": self.writer.session,
            "rank": self.writer.rank,
            "time": time.time(),
            "metrics": metrics,
            "slices": slices,
            "columns": sorted(self._columns),
            "not_observed": absent,
            "nonfinite": self._nonfinite,
            "costs_s": costs,
            "duration_s": duration_s,
            "num_failures": self.num_failures,
            "failed": self._failed_now,
        }

    def _restore(self, step: int) -> None:
        """Feed the detectors what the run knew before `step`, so that a resume continues with its baseline."""
        reader = RunReader(self.writer.folder, complete=True)
        rank = self.writer.rank
        if reader.last_step(rank) is None:
            return
        closed: dict[int, list[Reading]] = {}
        for row in reader.rows("readings", rank):
            closed.setdefault(int(row["step"]), []).extend(readings_from_row(row))
        over = [int(row["step"]) for row in reader.rows("steps", rank) if row["step"] >= step]
        if over:
            log.warning(
                "trimtab: %s holds steps up to %d and now starts again at %d; steps %d to %d stay on disk but no view shows "
                "them. Give a new folder if this is another run.", self.writer.folder, over[-1], step, over[0], over[-1],
            )  # fmt: skip
        before = [row for row in reader.rows("steps", rank) if row["step"] < step]
        replay_tools(self.tools, before, reader.rows("tools", rank))
        for row in before:
            self.pipeline.on_step(row["step"], row["nonfinite"], row["columns"])
            self.pipeline.on_readings(closed.get(row["step"], []))

    def _new_trajectories(self) -> int:
        return sum(counts.get("all", (0, 0))[1] for counts in self._counts)

    def _fresh(self, batch: TokenBatch) -> Any:
        """(B,) True for trajectories not counted before, so that a second epoch does not count them twice."""
        fresh = np.ones(batch.num_sequences, bool)
        for i, episode in enumerate(batch.episode_id.tolist()):
            if episode in self._episodes:
                fresh[i] = False
            else:
                self._episodes[episode] = None
        while len(self._episodes) > _MAX_EPISODES:
            self._episodes.popitem(last=False)
        return fresh

    @contextmanager
    def isolated(self, where: str, cost: str = "watch") -> Iterator[None]:
        """The one catch-all: book the block's time under `cost`, book any failure, let training go on.

        Adapters put their own code in it too. Nested blocks charge their time once, to the innermost cost.
        """
        start = time.perf_counter()
        self._inner_s.append(0.0)
        try:
            yield
        except Exception as error:
            self._book(where, error)
            if self.strict:
                raise
        finally:
            elapsed = time.perf_counter() - start
            self.charge(cost, elapsed - self._inner_s.pop())
            if self._inner_s:
                self._inner_s[-1] += elapsed

    def _book(self, where: str, error: BaseException) -> None:
        self.num_failures += 1
        self._failed_now = True
        text = f"{type(error).__name__}: {error}"
        if self.num_failures <= _MAX_ERROR_ROWS:
            log.error("trimtab could not %s (failure %d): %s", where, self.num_failures, text)
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            row = {
                "where": where,
                "error": text,
                "traceback": trace,
                "step": self.last_step if self.last_step is not None else -1,
            }
            try:
                self.writer.write("errors", [{**row, "time": time.time()}])
            except (OSError, TrimtabError) as second:
                log.error("trimtab could not write its error either: %s", second)
