"""Detection of failed calls, from the result's text or an error field. Chat logs have no error field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trimtab.traces.core.coerce import as_number, as_text
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.errors.json_errors import said_by
from trimtab.traces.errors.patterns import starts_as_error

_MAX_JSON = 20_000  # characters of a result that are looked at as JSON for an error field
_FIELD = re.compile(r'"(?:is_?error|error\w*|status(?:_code)?|success|ok|exit_?code|return_?code)"', re.I)
NO_ERROR, BLANKS = ("", "false", "none", "null", "0", "0.0", "{}", "[]"), " \t\n\v\f\r"
"""What an error field says where there was no error, case and blanks around it aside."""
ONLY_SAYS_SO = ("true", "1", "1.0")
"""An error field that says that there was one, and not which: the result does."""
_TEXTS = ("error", "error_message", "errorMessage", "error_msg")
_STATUSES = ("status", "status_code", "statusCode", "http_status", "code")
_CODES = ("exit_code", "exitCode", "returncode", "return_code")


def error_text(result: str | None) -> str:
    """The error a result's text says it is; empty when it says none. A rule of thumb: text that starts as an
    error, or a JSON object with an `error`, an `is_error`, a `status` of error or of 400 and more, a
    `success` or `ok` of false, or an exit code.

    >>> error_text("Error: no seats"), error_text('{"error": "HTTP 500"}'), error_text("No error was found")
    ('Error: no seats', 'HTTP 500', '')
    """
    if not result:
        return ""
    if starts_as_error(result):
        return result
    if result[0] != "{" or len(result) > _MAX_JSON or not _FIELD.search(result[:_MAX_JSON]):
        return ""
    try:
        value = parse_json(result)
    except BadJson:
        return ""
    return _json_error(value) if isinstance(value, dict) else ""


def _json_error(value: dict[str, Any]) -> str:
    status = _status(value, _STATUSES)
    for name in _TEXTS:
        if not says_no_error(value.get(name)):
            return _with_status(as_text(value[name]) or "error", status)
    status_field = next((value[name] for name in ("status", "status_code") if name in value), None)
    exit_code = next((value[name] for name in _CODES if name in value), None)
    message = ""
    if any(value.get(name) is True for name in ("is_error", "isError")):
        message = "error"
    elif str(status_field).lower() in ("error", "failed", "failure"):
        message = f"status {status_field}"
    elif first := _status(value, _STATUSES[:2]):
        message = first
    elif any(value.get(name) is False for name in ("success", "ok")):
        message = "no success"
    elif isinstance(exit_code, int) and not isinstance(exit_code, bool) and exit_code:
        message = f"exit code {exit_code}"
    if not message:
        return ""
    texts = map(value.get, ("message", "detail", "reason", "content", "stderr"))
    return _with_status(as_text(next(filter(None, texts), message)) or "error", status)


def _status(value: dict[str, Any], names: Sequence[str]) -> str:
    """The HTTP status of an error in an object, as `status 503`; empty for none."""
    for name in names:
        number = None if isinstance(value.get(name), bool) else as_number(value.get(name))
        if number is not None and 400 <= number < 600:
            return f"status {int(number)}"
    return ""


def _with_status(text: str, status: str) -> str:
    """What is said, and the status, which says whose fault it was; of an object its message."""
    if not status or status.split()[1] in text:
        return text
    return f"{status}: {said_by(text) or text}"


def says_no_error(value: Any) -> bool:
    """Does an error field hold what says that there was none, also as text?

    >>> [says_no_error(value) for value in (None, False, 0, {}, "None ", "none of the rows", {"code": 500})]
    [True, True, True, True, True, False, False]
    """
    return value is None or _word(value) in NO_ERROR


def says_fine(value: Any) -> bool:
    """Does it say so in as many words, false? Null and blank may stand in every row of a table.

    >>> says_fine(False), says_fine("False"), says_fine(None)
    (True, True, False)
    """
    return _word(value) == "false"


def error_words(value: Any) -> str | None:
    """What an error field says; None where it is only that there was an error.

    >>> error_words("HTTP 503"), error_words(True), error_words("1")
    ('HTTP 503', None, None)
    """
    return None if _word(value) in ONLY_SAYS_SO else as_text(value)


def _word(value: Any) -> str:
    return (as_text(value) or "").strip(BLANKS).lower()
