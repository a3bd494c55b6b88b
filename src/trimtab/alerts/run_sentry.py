"""Alerts of a run from a second process, which sees what the run itself cannot say: that it is silent or
gone."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from trimtab.alerts.alert import Alert, alert_of, one_line
from trimtab.alerts.alert_sink import AlertSink
from trimtab.alerts.targets import DeliveryError
from trimtab.catalog import bound
from trimtab.report.post_mortem import keep_post_mortem
from trimtab.report.run_ending import ending_of
from trimtab.report.run_incidents import incidents_at
from trimtab.report.run_view import RunView
from trimtab.runs.integrity import stopped_texts
from trimtab.sinks.incident_log import IncidentLog
from trimtab.sinks.sink import Change, SinkRun

OVER = frozenset({"finished", "exited", "exception", "signal", "vanished"})
"""Ways a run ended after which no row comes; another session may still begin."""
_BAD_ENDS = OVER - {"finished", "exited"}


class RunSentry:
    """Reads a run folder again and again and alerts about its incidents, its silence and a bad end.

    Args:
        folder: run folder, of any number of ranks.
        sinks: alerts to be fed.
        silence_s: seconds without a row after which a run that has not ended is called silent.

    Raises:
        RunError: the folder is not a run.

    Example:
        sentry = RunSentry("runs/exp1", [AlertSink(CommandTarget(["notify"]))])
        while not sentry.is_over: sentry.check(); time.sleep(5)
    """

    def __init__(
        self, folder: str | os.PathLike[str], sinks: Sequence[AlertSink], silence_s: float | None = None
    ) -> None:
        self.view, self.sinks = RunView(folder), tuple(sinks)
        self.silence_s = bound("alert_silence") if silence_s is None else silence_s
        header = self.view.reader.header
        name = self.view.folder.resolve().name
        self.run = SinkRun(str(header.get("run_id", "")), name, self.view.folder, header["config"])
        self._log = IncidentLog(self.run.run_id)
        self._silent_at: int | None = None  # step after which it fell silent
        self._stopped_at: dict[int, int] = {}  # rank without a heartbeat -> step at which that was seen
        self.ending = ""
        self.failures: list[str] = []  # of the last check
        self._failed: set[str] = set()  # names of sinks that failed in it
        for sink in self.sinks:
            sink.open(self.run)

    @property
    def is_over(self) -> bool:
        """Whether the run ended, by its record or because its process is gone."""
        return self.ending in OVER

    @property
    def num_sent(self) -> int:
        """Alerts that were delivered."""
        return sum(sink.num_sent for sink in self.sinks)

    def check(self) -> None:
        """Read what is new and send what is news. What could not be sent is in `failures`."""
        self.view.refresh()
        view = self.view
        step = int(view.steps[-1]["step"]) if view.steps else -1
        changes = self._log.changes(step, incidents_at(view, view.alarms))
        alerts = [alert_of(change, self.run) for change in changes]
        alerts += self._silence(step) + self._stopped(step)
        self.failures, self._failed = [], set()
        for sink in self.sinks:
            sink.add(*alerts)
            try:
                sink.send()
            except DeliveryError as error:
                self.failures.append(str(error))
                self._failed.add(sink.name)

    def close(self) -> None:
        """Try once more what waits, but not where the time of a call is bounded and the last one failed."""
        for sink in self.sinks:
            if sink.name in self._failed and sink.options.max_call_s < math.inf:
                continue
            try:
                sink.flush()
            except DeliveryError as error:
                self.failures.append(str(error))

    def _silence(self, step: int) -> list[Alert]:
        """The alert that the run is silent, ended badly, or writes again."""
        ending = ending_of(self.view.reader, self.view.steps)
        self.ending = str(ending["how"])
        rows = [float(row["time"]) for row in self.view.steps[-1:]]
        age_s = time.time() - (rows[0] if rows else float(self.view.reader.header.get("created", 0.0)))
        if self.ending in _BAD_ENDS:
            self._silent_at = step
            with suppress(OSError):  # a folder that may only be read; `trimtab postmortem` says so
                keep_post_mortem(self.view, "reader")
            return [self._alert("opened", step, f"has ended: {self.ending}", str(ending["text"]))]
        if self.ending not in OVER and age_s > self.silence_s:
            self._silent_at = step
            text = f"no step for {age_s:.0f} s, the last one is {step}; {ending['text']}"
            return [self._alert("opened", step, "is silent", text)]
        if self._silent_at is not None and self._silent_at != step:
            last, self._silent_at = self._silent_at, None
            return [self._alert("resolved", last, "writes again", f"step {step}")]
        return []

    def _stopped(self, step: int) -> list[Alert]:
        """The alerts that ranks give no sign of life while others do, or do again, or have ended."""
        alerts, now = [], {} if self.ending in OVER else stopped_texts(self.view.reader)
        for rank, text in now.items():
            if rank not in self._stopped_at:
                self._stopped_at[rank] = step
                cause = f"has a rank that gives no sign of life: rank {rank}"
                alerts.append(self._alert("opened", step, cause, text, f"stopped/{rank}/{step}"))
        for rank in self._stopped_at.keys() - now.keys():
            at = self._stopped_at.pop(rank)
            cause = f"has rank {rank} back, or it ended"
            alerts.append(self._alert("resolved", at, cause, f"step {step}", f"stopped/{rank}/{at}"))
        return alerts

    def _alert(self, change: Change, step: int, cause: str, text: str, name: str = "") -> Alert:
        run = self.run
        return Alert(
            f"{one_line(run.run_id)}/{name or f'silent/{step}'}", change, "critical", one_line(run.name),
            one_line(run.run_id), step, step, "all", one_line(cause), (one_line(text),), (), kind="silent",
        )  # fmt: skip
