"""Who is to blame for a failed call, and may it be repeated?

Blame decides what training does with the episode: a failure of the policy is a lesson, one of the
infrastructure is not (`exclusion`).
"""

from __future__ import annotations

import errno
from typing import Literal

from trimtab.traces.errors.database_errors import database_blame

Blame = Literal["policy", "tool", "infrastructure"]

_CONNECTION = frozenset({
    "ConnectionError", "ConnectError", "ConnectTimeout", "ClientConnectionError", "NetworkError",
    "PoolTimeout", "RemoteProtocolError", "BrokenResourceError", "ClosedResourceError",
    "EndOfStream", "IncompleteRead",
})  # fmt: skip
"""Names of classes, in any library, that say that the connection failed."""
_ERRNO = frozenset({
    errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.EHOSTUNREACH,
    errno.ENETUNREACH, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOSPC,
})  # fmt: skip
_TRANSIENT = frozenset({
    "connection", "rate_limited", "unavailable", "server_error", "timeout", "circuit_open",
    "sandbox_died", "corrupt", "dropped",
})  # fmt: skip


class ToolFailure(Exception):
    """A failed call. Tools may raise it themselves, as `ToolFailure("policy", "refused", "no such table")`.

    `retry_after_s`: seconds the server asked to wait. `congested`: the target has too much to do.
    """

    def __init__(
        self, blame: Blame, kind: str, message: str, *, retry_after_s: float = 0.0, sent: bool = True
    ) -> None:
        super().__init__(message)
        self.blame, self.kind, self.retry_after_s = blame, kind, retry_after_s
        self.sent = sent  # may the tool have run?

    @property
    def transient(self) -> bool:
        """True where the same call may succeed a moment later."""
        return self.blame != "policy" and self.kind in _TRANSIENT

    @property
    def congested(self) -> bool:
        """True where the failure says that the target, or the way to it, has too much to do."""
        return self.kind in {
            "rate_limited",
            "unavailable",
            "timeout",
            "connection",
            "server_error",
            "dropped",
        }


def classify(error: BaseException) -> ToolFailure:
    """Return any exception as a failure with its blame; `ToolFailure`s pass as they are.

    >>> one = classify(ConnectionRefusedError("port 80"))
    >>> one.blame, one.kind, str(one)
    ('infrastructure', 'connection', 'ConnectionRefusedError: port 80')
    >>> classify(ZeroDivisionError("division by zero")).blame
    'tool'
    """
    if isinstance(error, ToolFailure):
        return error
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int) and status >= 400:
        return http_failure(status, text)
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _CONNECTION or (isinstance(error, OSError) and error.errno in _ERRNO):
        return ToolFailure("infrastructure", "connection", text)
    if isinstance(error, TimeoutError) or "TimeoutException" in names:
        return ToolFailure("tool", "timeout", text)
    return text_failure(text)


def text_failure(text: str, kind: str = "error") -> ToolFailure:
    """Return the failure of which only a tool's own text says what happened.

    A database's error is the policy's where the statement is wrong, and the infrastructure's where the
    database is locked, full or gone (`database_blame`, as in logs). Everything else is the tool's.

    >>> [text_failure(text).blame for text in ("no such table: users", "database is locked", "boom")]
    ['policy', 'infrastructure', 'tool']
    """
    blame = database_blame(text)
    kinds = {"policy": "refused", "tool": "timeout", "infrastructure": "unavailable"}
    return ToolFailure(blame, kinds[blame], text) if blame else ToolFailure("tool", kind, text)


def exit_failure(error: SystemExit) -> ToolFailure:
    """Return the failure of a tool that ended its process: outside this executor it would end the training.

    >>> str(exit_failure(SystemExit(0))), str(exit_failure(SystemExit("bye")))
    ('ended the process (exit code 0)', 'ended the process (exit code 1): bye')
    """
    code = error.code
    text = f": {code}" if code is not None and not isinstance(code, int) else ""
    number = 0 if code is None else code if isinstance(code, int) else 1
    return ToolFailure("tool", "exit", f"ended the process (exit code {number}){text}")


def http_failure(status: int, message: str, retry_after: str = "") -> ToolFailure:
    """Return the failure that an HTTP status says.

    4xx is the policy's (the request was refused), but for those that speak of the set-up (401, 403, 407)
    or of load (408, 425, 429).

    >>> [http_failure(status, "").blame for status in (400, 401, 429, 503)]
    ['policy', 'infrastructure', 'infrastructure', 'infrastructure']
    """
    wait = retry_seconds(retry_after)
    if status in (408, 425, 429):
        return ToolFailure("infrastructure", "rate_limited", message, retry_after_s=wait)
    if status in (502, 503, 504):
        return ToolFailure("infrastructure", "unavailable", message, retry_after_s=wait)
    if status >= 500:
        return ToolFailure("infrastructure", "server_error", message, retry_after_s=wait)
    if status in (401, 403, 407):
        return ToolFailure("infrastructure", "denied", message)
    return ToolFailure("policy", "refused", message)


def retry_seconds(text: str, maximum: float = 300.0) -> float:
    """Return the seconds of a Retry-After header; 0 for a date in the past or what is neither.

    >>> retry_seconds("2.5"), retry_seconds("soon"), retry_seconds("-1"), retry_seconds("1e9")
    (2.5, 0.0, 0.0, 300.0)
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = _until(text)
    return min(max(seconds, 0.0), maximum) if seconds == seconds else 0.0


def _until(text: str) -> float:
    from datetime import datetime, timezone
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - datetime.now(timezone.utc)).total_seconds()
