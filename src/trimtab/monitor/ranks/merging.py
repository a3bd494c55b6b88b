"""A run of many ranks: every rank hands over its steps, and the one that leads judges the merged ones.

What one rank would have judged at a step is judged when all ranks have written it: some steps later, from the
same readings under the same keys. Nothing here waits for a rank, except `finish`, up to a limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from trimtab.detect.step_readings import step_readings
from trimtab.distributed.decisions import DecisionChannel, FolderDecisions
from trimtab.distributed.ended_ranks import EndedRanks
from trimtab.distributed.folder_source import FolderSource
from trimtab.distributed.gloo_group import Membership, default_store
from trimtab.distributed.gloo_source import GlooSource, Ports
from trimtab.distributed.heartbeats import Heartbeats
from trimtab.distributed.merged_step import MergedStep
from trimtab.distributed.merger import Merger
from trimtab.distributed.shard import Block, Row, Shard
from trimtab.distributed.silent_ranks import SilenceEvent, SilentRanks
from trimtab.distributed.sources import MergeOptions, Source
from trimtab.distributed.store_source import StoreDecisions, StoreSource, StoreThread
from trimtab.measure.all_measures import pair_readings, readings_of
from trimtab.measure.sequences.step_aggregates import StepAggregates
from trimtab.measure.sequences.tool_health import ToolHealth, replay_tools
from trimtab.measure.state.blocks import StateBlocks
from trimtab.measure.state.slice_state import SliceState
from trimtab.measure.state.windows import WindowSet
from trimtab.measure.steps.series_history import SeriesHistory
from trimtab.measure.steps.step_series import StepSeries
from trimtab.measure.tokens.window_shift import WindowShift
from trimtab.monitor.ranks.relay import DecisionRelay
from trimtab.runs import RunWriter
from trimtab.runs.schema import FIRST_WORKER
from trimtab.types import Reading

_POLL_S = 0.02  # between two polls of `finish`


class JudgedStep(NamedTuple):
    """A merged step and what the detectors are to see of it."""

    merged: MergedStep
    readings: list[Reading]


class Judging:
    """From merged steps to readings, as a run of one rank makes them; `history` has the merged series."""

    def __init__(self, windows: WindowSet, tools: ToolHealth) -> None:
        self.windows, self.tools = windows, tools
        self.aggregates, self.history = StepAggregates(), SeriesHistory()
        self._shift = WindowShift()

    def readings(self, merged: MergedStep) -> list[Reading]:
        """Return the readings that close with a merged step."""
        self.aggregates.add(merged.step, merged.row["metrics"])
        readings: list[Reading] = []
        for first, last, states in merged.blocks:
            if isinstance(states, Mapping):
                readings += self._of_windows(first, last, states)
        if "all" not in self.windows.clocks and not merged.row["slices"]:
            readings += self.aggregates.without_tokens()
        done = replay_tools(self.tools, [merged.row], merged.tools)
        readings += [one for one in done if one.key not in self.aggregates.logged]
        if merged.series is not None:
            self.history.append(merged.series)
            readings += step_readings(merged.series)
        return readings

    def _of_windows(self, first: int, last: int, states: Mapping[str, SliceState]) -> list[Reading]:
        readings: list[Reading] = []
        closed, pair = self.windows.add(first, last, states)
        for name, done in closed:
            judged = readings_of(name, done.window, done.states[name], self._shift)
            readings += self.aggregates.apply(judged, done.window) if name == "all" else judged
        if pair is not None:
            readings += pair_readings(pair.window, pair.states)
        return readings


class ShardParts(NamedTuple):
    """What a shard has beside its row of steps."""

    series: StepSeries | None
    tools: tuple[Row, ...]
    blocks: tuple[Block, ...]


class RunMerge:
    """The part of one rank in merging. `leads`: this rank merges and judges.

    `judging` is the leading rank's; it is None on the others.
    """

    def __init__(
        self,
        options: MergeOptions,
        ranks: int,
        writer: RunWriter,
        judging: Judging,
        *,
        relays: bool = False,
    ) -> None:
        self.options = options
        self.rank, self.session = writer.rank, writer.session
        self.leads = writer.rank == options.leader
        self.judging = judging if self.leads else None
        self.source, channel = _source(options, writer)
        self.relay = None
        if relays:
            if channel is None:
                channel = FolderDecisions(writer.folder, options.leader, writer.session, leads=self.leads)
            self.relay = DecisionRelay(channel, leads=self.leads, delay=options.delay)
        self.merger = Merger(range(ranks), options.lag)
        self._number = 0
        self._own: dict[int, list[Reading]] = {}  # of this rank alone, until their step is judged
        self._last_steps: dict[int, int] = {}
        self._watches = self.leads or writer.rank == _deputy(options.leader, ranks)
        watched = set(range(ranks)) if self.leads else {options.leader}
        self.silent = SilentRanks(watched - {writer.rank} if self._watches else ())
        self.ended = EndedRanks(writer.folder)
        self.beats = Heartbeats(writer.folder, writer.rank, self.silent.ranks)

    @property
    def takes_states(self) -> bool:
        """Must the states of this rank reach the source from memory? A source that reads the folder has them
        from there."""
        return self.leads or self.options.way != "folder"

    def parts(self, series: StepSeries | None, calls: list[Row], blocks: StateBlocks) -> ShardParts:
        """Return what this rank hands over beside its row; takes the states of the blocks that ended."""
        finished, blocks.finished = blocks.finished, [] if self.takes_states else None
        return ShardParts(series, tuple(calls), tuple(Block(*one) for one in finished or ()))

    def take(self, row: Row, own: list[Reading], parts: ShardParts) -> None:
        """Hand over the step of this rank that was just written. `own`: readings that rest on this rank
        alone, such as those of probes."""
        step = int(row["step"])
        if own and self.leads:
            self._own[step] = own
        shard = Shard(self.rank, self.session, self._number, step, row, *parts)
        self._number += 1
        if self.leads:
            self.merger.add(shard)
        self.source.put(shard)

    def poll(self) -> None:
        """Take in what the others wrote; on a rank that does not lead, see that the leading one lives."""
        if not self._watches:
            return
        for shard in self.source.poll():
            self._last_steps[shard.rank] = shard.step
            if self.leads:
                self.merger.add(shard)

    def judged(self, budget_s: float | None = None, *, everything: bool = False) -> Iterator[JudgedStep]:
        """Yield the steps that are complete now, within the time that merging may take."""
        if self.judging is None:
            return
        budget = self.options.budget_s if budget_s is None else budget_s
        for merged in self.merger.fold(budget, everything=everything):
            own = [one for step in sorted(self._own) if step <= merged.step for one in self._own.pop(step)]
            yield JudgedStep(merged, self.judging.readings(merged) + own)

    def silences(self) -> list[SilenceEvent]:
        """Return which ranks fell silent by the step that this rank closes, and which are back."""
        if not self.source.is_current():
            if self.source.failure():
                self.silent.pause(time.monotonic())
            return []
        trainers = {rank: last for rank, last in self._last_steps.items() if rank < FIRST_WORKER}
        stopped = self.beats.take_stopped()
        return self.silent.close(trainers, time.monotonic(), stopped, self.ended.has_ended)

    def finish(self, last_step: int) -> Iterator[JudgedStep]:
        """Wait up to `end_wait_s` for what the others still write up to `last_step`, and yield it all."""
        if not self.leads:
            return
        deadline = time.monotonic() + self.options.end_wait_s
        self.poll()
        while self.merger.behind(last_step) and time.monotonic() < deadline and not self.source.failure():
            time.sleep(_POLL_S)
            self.poll()
        yield from self.judged(60.0, everything=True)

    def status(self) -> dict[str, Any]:
        """Return what is recorded with each step of the leading rank; empty on the others."""
        if not self.leads:
            return {}
        through = self.merger.folded_through
        status: dict[str, Any] = {"through": -1 if through is None else through, **self.merger.status()}
        failure = self.source.failure()
        if failure:
            status["failure"] = failure
        silent = {str(rank): since for rank, since in self.silent.silent.items()}
        return status | ({"silent": silent} if silent else {})

    def close(self) -> None:
        """Release the source, and the relay of decisions."""
        self.beats.close()
        self.source.close()
        if self.relay is not None:
            self.relay.close()


def _deputy(leader: int, ranks: int) -> int:
    """The rank that sees when the leading one falls silent: the lowest other one; -1 where there is none."""
    return next((rank for rank in range(ranks) if rank != leader), -1)


def _source(options: MergeOptions, writer: RunWriter) -> tuple[Source, DecisionChannel | None]:
    """Return where shards come from, and the channel of decisions that goes with it; None: the folder."""
    leads = writer.rank == options.leader
    if options.way == "store":
        thread = StoreThread(options.store)
        source = StoreSource(thread, writer.rank, options.leader, options.ranks or 1)
        return source, StoreDecisions(thread, writer.session, leads=leads)
    only = None if leads else {options.leader}
    folder = FolderSource(writer.folder, writer.rank, resumed=writer.session > 0, only=only)
    ranks = options.ranks or 1
    if options.way == "gloo" and writer.rank < ranks:  # a worker outside the group writes its files alone
        member = Membership(writer.rank, ranks, options.leader, options.deadline_s)
        store = default_store() if options.store is None else options.store
        return GlooSource(store, member, folder, Ports(writer.position, partial(_report, writer))), None
    return folder, None


def _report(writer: RunWriter, text: str) -> None:
    """Record a failure of the way that shards travel."""
    row = {"step": writer.last_step, "time": time.time(), "where": "gather the ranks", "error": text}
    with suppress(OSError):  # the writer says that it cannot write
        writer.write("errors", [row])


def run_merge(
    options: MergeOptions | None,
    writer: RunWriter,
    windows: WindowSet,
    tools: ToolHealth,
    *,
    relays: bool = False,
) -> RunMerge | None:
    """Return the part of this rank in merging; None where `options` is None.

    Args:
        options: with the number of `ranks`.
        writer: of this rank's session.
        windows: sizes of windows, and on the leading rank what the merged states fill.
        tools: on the leading rank, what the merged calls fill.
        relays: take the leading rank's decisions to all ranks.
    """
    if options is None:
        return None
    merged = WindowSet(windows.min_tokens, windows.min_trajectories)
    return RunMerge(options, options.ranks or 1, writer, Judging(merged, tools), relays=relays)
