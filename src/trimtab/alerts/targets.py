"""Where alerts go: a webhook over HTTP, or a command of this machine.

A target raises `DeliveryError`. Its text never holds the address, which is a secret: who knows the URL of a
webhook may write to its channel.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from email.message import Message
from typing import IO, Any, Literal, Protocol
from urllib.parse import urlsplit

from trimtab.alerts.alert import Alert
from trimtab.alerts.slack_format import slack_payload
from trimtab.catalog import bound
from trimtab.errors import SinkError

_TRIED_AGAIN = frozenset({408, 425, 429})
"""Statuses below 500 that another attempt may change."""


class DeliveryError(Exception):
    """An alert was not delivered. `permanent`: another attempt would end the same."""

    def __init__(self, text: str, *, permanent: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.permanent, self.retry_after_s = permanent, retry_after_s


class AlertTarget(Protocol):
    """Something that takes an alert.

    Example:
        class Printer:
            name = "printer"
            def deliver(self, alert): print(alert.title)
    """

    name: str

    def deliver(self, alert: Alert) -> None:
        """Hand over one alert. Raises DeliveryError."""
        ...


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address that moves is a failure: following it would hand the alert to somebody else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing."""


class Webhook:
    """Posts alerts as JSON, or in Slack's format, to an address.

    Example:
        AlertSink(Webhook(os.environ["SLACK_URL"], format="slack"))
    """

    def __init__(
        self, url: str, *, format: Literal["json", "slack"] = "json", timeout_s: float | None = None
    ) -> None:
        if format not in ("json", "slack"):
            raise SinkError(f"a webhook's format is json or slack, not {format!r}")
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
        except (ValueError, AttributeError, TypeError):
            usable = False
        if not usable:  # the address itself is not shown
            raise SinkError("a webhook needs an address that begins with https:// or http:// (not shown)")
        self._url, self._format = url, format
        self._timeout_s = bound("alert_timeout") if timeout_s is None else timeout_s
        self.name = "slack" if format == "slack" else "webhook"
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __repr__(self) -> str:
        """Without the address."""
        return f"Webhook({self.name})"

    def deliver(self, alert: Alert) -> None:
        """Post one alert. Raises DeliveryError, without the address."""
        body = slack_payload(alert) if self._format == "slack" else alert.payload()
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "trimtab"}
        request = urllib.request.Request(self._url, json.dumps(body).encode("utf-8"), headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s):
                return
        except urllib.error.HTTPError as error:
            status, wait_s = error.code, _retry_after(error.headers.get("Retry-After"))
            error.close()
            permanent = status < 500 and status not in _TRIED_AGAIN
            failure = DeliveryError(
                f"{self.name} answered {status}", permanent=permanent, retry_after_s=wait_s
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            failure = DeliveryError(f"{self.name} did not answer ({_kind(error)})")
        raise failure  # outside of the handlers: its context would be an error that knows the address


def _kind(error: BaseException) -> str:
    """The class of an error, or of the one inside; never its text, which may hold the address."""
    reason = getattr(error, "reason", None)
    return type(reason if isinstance(reason, BaseException) else error).__name__


def _retry_after(value: str | None) -> float:
    """Seconds of a Retry-After header, a number or a date; 0 where there is none.

    >>> _retry_after("7"), _retry_after(None), _retry_after("soon"), _retry_after("-3")
    (7.0, 0.0, 0.0, 0.0)
    """
    if value is None:
        return 0.0
    with suppress(ValueError):
        return max(0.0, float(int(value)))
    with suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0


class CommandTarget:
    """Starts a command for each alert, with the alert as JSON on its standard input; never through a shell.

    Example:
        AlertSink(CommandTarget(["notify", "--urgent"]))
    """

    name = "command"

    def __init__(self, argv: Sequence[str], *, timeout_s: float | None = None) -> None:
        if isinstance(argv, str) or not argv or not all(isinstance(one, str) for one in argv):
            raise SinkError(
                "a command is a list of texts, as ['notify', '--urgent']; it does not go through a shell"
            )
        self._argv = list(argv)
        self._timeout_s = bound("alert_timeout") if timeout_s is None else timeout_s
        self._lock, self._stopped = threading.Lock(), False
        self._child: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Kill the command that runs now, with its group, and start no other one."""
        with self._lock:
            self._stopped = True
            if self._child is not None and self._child.returncode is None:  # not reaped: the id is its own
                _kill_group(self._child)

    def deliver(self, alert: Alert) -> None:
        """Run the command to its end. Raises DeliveryError."""
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        try:
            with self._lock:
                if self._stopped:
                    raise DeliveryError(
                        f"command {self._argv[0]!r} not started: the run is over", permanent=True
                    )
                child = self._child = subprocess.Popen(self._argv, start_new_session=True, **pipes)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise DeliveryError(f"command {self._argv[0]!r} cannot start ({why})", permanent=True) from None
        with child:
            try:
                child.communicate(json.dumps(alert.payload()).encode("utf-8"), timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                raise DeliveryError(
                    f"command {self._argv[0]!r} did not end in {self._timeout_s:g} s"
                ) from None
            finally:  # a time limit, Ctrl-C
                if child.returncode is None:
                    _kill_group(child)
                    child.wait()
                self._child = None
        if child.returncode:
            raise DeliveryError(f"command {self._argv[0]!r} ended with {child.returncode}")


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
