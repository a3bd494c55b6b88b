"""Incidents to one target: each once, an update when it grows worse or ends, and never more than the rate.

What was sent stands in `alerts.<name>.json` of the run folder, so that a resume and a second process send
nothing twice. The file has identities and severities, and no address.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.alerts.alert import RANK, Alert, alert_of
from trimtab.alerts.targets import AlertTarget, DeliveryError
from trimtab.catalog import bound
from trimtab.errors import SinkError
from trimtab.safe_files import replacing
from trimtab.sinks.sink import Change, SinkRun, StepRecord
from trimtab.types import Severity

_MAX_SENT = 1_000  # identities that are remembered, the latest


@dataclass(frozen=True)
class DeliveryOptions:
    """When an alert is sent, and how often it is tried."""

    min_severity: Severity = "warning"
    rate_per_hour: float = bound("alert_rate")
    burst: int = int(bound("alert_burst"))
    attempts: int = int(bound("alert_attempts"))
    first_pause_s: float = 1.0  # doubled before each further attempt
    max_pause_s: float = bound("alert_pause")
    max_call_s: float = math.inf  # of one call of `send` or `flush`; no attempt begins that may outlast it

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.min_severity not in ("warning", "critical"):
            raise SinkError(f"min_severity is warning or critical, not {self.min_severity!r}")
        if not (
            self.rate_per_hour > 0 and self.burst >= 1 and self.attempts >= 1 and self.first_pause_s >= 0
        ):
            raise SinkError("rate_per_hour is above 0, burst and attempts are at least 1, pauses at least 0")


class AlertSink:
    """A sink that tells a target about incidents.

    Args:
        target: a `Webhook`, a `CommandTarget`, or any object with `name` and `deliver`.
        options: severity, rate and attempts.
        name: of the sink; the target's where it is empty. Two of one kind need two names.

    Example:
        trimtab.open_run("runs/exp1", sinks=[AlertSink(Webhook(os.environ["SLACK_URL"], format="slack"))])
    """

    def __init__(
        self,
        target: AlertTarget,
        options: DeliveryOptions | None = None,
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target, self.options = target, options or DeliveryOptions()
        self.name = name or target.name
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise SinkError(f"the name of an alert is letters, digits, - and _, not {self.name!r}")
        self._clock, self._tokens, self._filled_at = clock, float(self.options.burst), clock()
        self._sent: dict[str, list[object]] = {}  # identity -> severity, open
        self._pending: dict[str, Alert] = {}
        self._rounds: dict[str, int] = {}  # identity -> calls in which every attempt failed
        self._wake = threading.Event()  # its wait is a pause; set when the run is over
        self._call_end = math.inf
        self.num_sent = 0

    def open(self, run: SinkRun) -> None:
        """Read what was sent before."""
        self._run, self._path = run, run.folder / f"alerts.{self.name}.json"
        self._sent = _read_sent(self._path) | self._sent

    def write(self, record: StepRecord) -> int:
        """Send what is new of the incidents; return 0, as nothing is refused."""
        self.add(*(alert_of(change, self._run) for change in record.changes))
        self.send()
        return 0

    def add(self, *alerts: Alert) -> None:
        """Take alerts that are to be sent, where their state is news; of one incident the latest counts."""
        for alert in alerts:
            self._pending.pop(alert.identity, None)
            change = self._news(alert)
            if change is not None:
                self._pending[alert.identity] = replace(alert, change=change)

    def send(self) -> None:
        """Deliver what waits, the gravest first, as far as the rate allows. Raises DeliveryError."""
        self._call_end = time.monotonic() + self.options.max_call_s
        for i, alert in enumerate(sorted(self._pending.values(), key=lambda one: -RANK[one.severity])):
            if i and not self._has_time(0.0):
                limit_s = self.options.max_call_s
                raise DeliveryError(
                    f"{self.name}: {len(self._pending)} waiting after {limit_s:.0f} s, not sent"
                )
            if not self._take_token():
                return
            self._deliver(replace(alert, held_back=len(self._pending) - 1))

    def flush(self) -> None:
        """Try again what waits; where the rate holds something back, send the gravest with their number."""
        self.send()
        if self._pending:
            gravest = max(self._pending.values(), key=lambda one: RANK[one.severity])
            self._deliver(replace(gravest, held_back=len(self._pending) - 1))

    def close(self) -> None:
        """Flush, unless that has just been done."""
        self.send()

    def abandon(self) -> None:
        """End what runs now, from another thread: the run is over, and nobody waits any more."""
        self._wake.set()
        stop = getattr(self.target, "stop", None)
        if stop is not None:
            stop()

    def _has_time(self, pause_s: float) -> bool:
        """Whether another attempt, after a pause, ends within the time of this call."""
        return time.monotonic() + pause_s + bound("alert_timeout") <= self._call_end

    def _news(self, alert: Alert) -> Change | None:
        """What the receiver does not know yet; None where it knows all, or never heard of what is over."""
        before, is_open = self._sent.get(alert.identity), alert.change != "resolved"
        if before is None:
            loud = RANK[alert.severity] >= RANK[self.options.min_severity]
            return "opened" if loud and is_open else None
        if is_open and not before[1]:
            return "reopened"
        if is_open and RANK[alert.severity] > RANK.get(str(before[0]), 0):
            return "worse"
        return "resolved" if before[1] and not is_open else None

    def _take_token(self) -> bool:
        """Whether a message may be sent now (a token bucket)."""
        now, per_s = self._clock(), self.options.rate_per_hour / 3_600.0
        self._tokens = min(float(self.options.burst), self._tokens + per_s * (now - self._filled_at))
        self._filled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _deliver(self, alert: Alert) -> None:
        """Try as often as allowed; what is delivered is written down, what fails waits for the next call."""
        pause_s, failure = self.options.first_pause_s, DeliveryError("no attempt")
        for attempt in range(self.options.attempts):
            try:
                self.target.deliver(alert)
            except DeliveryError as error:
                failure = error
                wait_s = min(self.options.max_pause_s, max(pause_s, error.retry_after_s))
                if error.permanent or self._wake.is_set():
                    break
                if not self._has_time(wait_s):
                    text = f"{error}; no more attempts within {self.options.max_call_s:.0f} s"
                    failure = DeliveryError(text)
                    break
                if attempt + 1 < self.options.attempts:
                    self._wake.wait(wait_s)
                    pause_s *= 2.0
            else:
                self._note(alert)
                return
        self._give_up(alert, failure)
        raise failure

    def _give_up(self, alert: Alert, failure: DeliveryError) -> None:
        """Leave an alert out after so many calls that failed, or at once where no attempt can do."""
        rounds = self._rounds[alert.identity] = self._rounds.get(alert.identity, 0) + 1
        if failure.permanent or rounds >= self.options.attempts:
            self._pending.pop(alert.identity, None)
            self._rounds.pop(alert.identity, None)

    def _note(self, alert: Alert) -> None:
        self.num_sent += 1
        self._pending.pop(alert.identity, None)
        self._rounds.pop(alert.identity, None)
        self._sent.pop(alert.identity, None)
        self._sent[alert.identity] = [alert.severity, alert.change != "resolved"]
        for old in list(self._sent)[:-_MAX_SENT]:
            del self._sent[old]
        with (
            suppress(OSError),
            replacing(self._path) as part,
        ):  # a full disk: then it is known in memory alone
            part.write_text(json.dumps({"version": 1, "sent": self._sent}), encoding="utf-8")


def _read_sent(path: Path) -> dict[str, list[object]]:
    """What was sent by earlier processes; nothing where the file is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        sent = json.loads(path.read_text(encoding="utf-8"))["sent"]
        if isinstance(sent, dict):
            known = {str(key): value for key, value in sent.items() if isinstance(value, list)}
            return {key: value for key, value in known.items() if len(value) == 2}
    return {}
