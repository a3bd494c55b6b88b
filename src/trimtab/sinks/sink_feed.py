"""The sinks of a live run: fed with the rows that the run store gets, drained when the run ends."""

from __future__ import annotations

import atexit
import logging
import shlex
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trimtab.catalog import bound
from trimtab.runs import RunWriter
from trimtab.runs.sink_losses import sink_line
from trimtab.sinks.row_translation import StoredStep
from trimtab.sinks.sink import Sink, SinkRun
from trimtab.sinks.sink_worker import SinkCounts, SinkWorker
from trimtab.sinks.tracker_libraries import TRACKERS
from trimtab.types import Incident

Row = dict[str, Any]
log = logging.getLogger("trimtab")

_MAX_PENDING = 10_000
"""Rows between two steps that are remembered."""
_POLL_S = 0.05


class SinkFeed:
    """Feeds the sinks of one rank's run. Rank 0 has them; the others write their shards alone.

    Example:
        feed.attach(writer); writer.write(...); feed.step(3, run.incidents)
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._workers: list[SinkWorker] = []
        self._pending: deque[tuple[str, Row]] = deque(maxlen=_MAX_PENDING)
        self._written_counts: dict[str, dict[str, Any]] = {}
        self._last_step = -1
        if sinks:  # before the run's own end is written at exit: what is registered first runs last
            weak = weakref.ref(self)
            atexit.register(lambda: feed.close() if (feed := weak()) is not None else None)
        self._warned: set[str] = set()  # sinks whose losses were said
        self._missed: set[str] = set()  # sinks that missed a deadline and have not come back since

    def attach(self, writer: RunWriter) -> None:
        """Take the rows of a session from here on."""
        if not self._sinks or writer.rank != 0:
            return
        writer.listener = self.take
        if not self._workers:
            header = writer.header
            name = writer.folder.resolve().name
            run = SinkRun(str(header.get("run_id", "")), name, writer.folder, header["config"])
            self._workers = [SinkWorker(sink, run) for sink in self._sinks]

    def take(self, kind: str, rows: Iterable[Row]) -> None:
        """Remember rows until their step is handed over."""
        for row in rows:
            if kind == "steps" and self._pending and self._pending[-1][0] == "steps":
                self._pending.pop()  # the second attempt of a step
            self._pending.append((kind, row))

    def step(self, step: int, incidents: Sequence[Incident] = ()) -> None:
        """Hand the rows since the last call to every sink, with the incidents as they are now."""
        if not self._workers:
            return
        self._last_step = step
        stored = StoredStep(step, tuple(self._pending), tuple(incidents))
        self._pending.clear()
        for worker in self._workers:
            worker.put(stored)

    @property
    def is_active(self) -> bool:
        """Whether there is a sink to be fed."""
        return bool(self._workers)

    def counts(self) -> dict[str, SinkCounts]:
        """Return what became of the steps, by sink."""
        return {worker.sink.name: worker.counts() for worker in self._workers}

    def step_fields(self) -> dict[str, Any]:
        """Return what the row of a step says of the sinks: their counts, where a loss is new."""
        lost = {name: asdict(one) for name, one in self.counts().items() if not one.lossless}
        if lost == self._written_counts:
            return {}
        self._written_counts = lost
        return {"sinks": lost}

    def drain(self, incidents: Sequence[Incident] = ()) -> dict[str, Any]:
        """Hand over what is pending and wait for all sinks, at most until the deadline.

        Returns:
            What the row of the end says of them: `sinks`, by name. Steps that still wait count as dropped.
        """
        if not self._workers:
            return {}
        if self._pending:
            self.step(self._last_step, incidents)
        self._wait([(worker, worker.request()) for worker in self._workers])
        counts = {worker.sink.name: _final(worker) for worker in self._workers}
        for worker in self._workers:
            self._warn(worker, counts[worker.sink.name])
        return {"sinks": {name: asdict(one) for name, one in counts.items()}}

    def close(self) -> None:
        """Close all sinks, at most until the deadline; one that misses it is left behind."""
        if self._pending:
            self.step(self._last_step)
        workers, self._workers = self._workers, []
        self._wait([(worker, worker.request(last=True)) for worker in workers])
        for worker in workers:
            if worker.sink.name in self._missed:
                worker.abandon()

    def _wait(self, requests: Sequence[tuple[SinkWorker, threading.Event]]) -> None:
        begin = time.monotonic()
        for worker, done in requests:
            name = worker.sink.name
            is_lost = name in self._missed and worker.num_waiting > 0
            while not done.is_set() and not is_lost:
                end = max(begin + bound("sink_deadline"), worker.patience_end)
                left = min(end, begin + bound("sink_deadline_max")) - time.monotonic()
                if left <= 0.0:
                    break
                done.wait(min(left, _POLL_S))
            if done.is_set():
                self._missed.discard(name)
            else:
                self._missed.add(name)

    def _warn(self, worker: SinkWorker, counts: SinkCounts) -> None:
        """Say once what a sink lacks, and how to fill it in."""
        name = worker.sink.name
        if counts.lossless or name in self._warned:
            return
        self._warned.add(name)
        line = sink_line({name: asdict(counts)})
        if name in TRACKERS and counts.dropped + counts.failed:
            folder = shlex.quote(str(worker.run.folder))
            line += f" `trimtab export {folder} --to {name} -o TARGET` writes them to a target of its own."
        log.warning("trimtab: %s", line)


def _final(worker: SinkWorker) -> SinkCounts:
    counts: Mapping[str, Any] = asdict(worker.counts())
    waiting = worker.num_waiting
    failure = counts["failure"]
    if waiting and not failure:
        failure = f"did not answer within {bound('sink_deadline'):.0f} s"
    return SinkCounts(**{**counts, "dropped": counts["dropped"] + waiting, "failure": failure})
