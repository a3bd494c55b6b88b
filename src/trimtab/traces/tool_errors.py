"""Did the call fail, how, and whose fault was it? Chat logs have no error field: it must be read off the result's text."""

from __future__ import annotations

import re
from typing import Any, Literal

from trimtab.traces.json_records import BadJson, parse_json
from trimtab.traces.values import as_number, as_text

__all__ = ["ERROR_START", "Fault", "error_kind_of", "error_text", "fault_of", "starts_as_error"]

Fault = Literal["tool", "policy", "unknown"]

ERROR_START = r"^\s{0,9}((error|exception)\b|traceback \(most recent call last\)|[a-z]\w{0,60}(error|exception)\s{0,9}[:(])"
"""How text starts that reports an error, case aside; in the dialect that re and DuckDB's RE2 share."""

_START = re.compile(ERROR_START, re.I)
_CLASS = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Timeout)\b")
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|(?<!\S)(?<!http )(?<!status )\S*\d\S*", re.I)
_LEAD = re.compile(r"^\s*(?:error|exception)\b[:\s]*", re.I)
_TOOL = re.compile(
    r"\b(?:50[0-4]|429)\b|time[d ]*-?out|connection|unreachable|unavailable\b(?! on)|rate.?limit|internal (?:server )?error|"
    r"bad gateway|overloaded|out of memory|reset by peer|dns|temporar",
    re.I,
)
_POLICY = re.compile(
    r"\b(?:40[0134]|422)\b|invalid|missing|required|not found|unknown|no such|unexpected|malformed|pars|json|argument|schema|"
    r"does not|cannot|not enough|not available|not allowed|permission|exceed|must ",
    re.I,
)
_MAX_JSON = 20_000  # characters of a result that are looked at as JSON for an error field


def starts_as_error(text: str) -> bool:
    """Does the text start as an error report?

    >>> starts_as_error("ERROR 7"), starts_as_error("KeyError: 'a'"), starts_as_error("Errors: 0"), starts_as_error("ok")
    (True, True, False, False)
    """
    return _START.match(text) is not None


def error_text(result: str | None) -> str:
    """The error a result's text says it is; empty when it says none. A rule of thumb: text that starts as an error, or a
    JSON object with an `error`, an `is_error`, or a `status` of error or of 400 and more.

    >>> error_text("Error: no seats"), error_text('{"error": "HTTP 500"}'), error_text("No error was found")
    ('Error: no seats', 'HTTP 500', '')
    """
    if not result:
        return ""
    if starts_as_error(result):
        return result
    if result[0] != "{" or len(result) > _MAX_JSON or ("error" not in result and "status" not in result):
        return ""
    try:
        value = parse_json(result)
    except BadJson:
        return ""
    return _json_error(value) if isinstance(value, dict) else ""


def _json_error(value: dict[str, Any]) -> str:
    if value.get("error") not in (None, "", False, [], {}):
        return as_text(value["error"]) or "error"
    status = next((value[name] for name in ("status", "status_code") if name in value), None)
    number = as_number(status) if not isinstance(status, bool) else None
    failed = value.get("is_error") is True or str(status).lower() in ("error", "failed", "failure")
    if failed or (number is not None and 400 <= number < 600):
        return (
            as_text(
                next((value[k] for k in ("message", "detail", "content") if value.get(k)), f"status {status}")
            )
            or "error"
        )
    return ""


def error_kind_of(error: str) -> str:
    """What errors of one kind share: the exception's class, or the first line without numbers, ids and quoted names; an HTTP status stays.

    >>> error_kind_of("Error: flight HAT030 not available on date 2024-05-13")
    'flight # not available on date #'
    >>> error_kind_of("Traceback (most recent call last):\\n  x\\nkeys.KeyError: 'a'")
    'keys.KeyError'
    """
    found = _CLASS.search(error[:4_000])
    if found and found.group().lower() != "error":
        return found.group()[:80]
    lines = _LEAD.sub("", error[:400]).strip().splitlines()
    return _VARIABLE.sub("#", lines[0] if lines else "")[:80].strip() or "error"


def fault_of(error: str) -> Fault:
    """Whose fault: the tool's (time-outs, connections, HTTP 5xx and 429) or the policy's (its call was wrong)? By its words.

    >>> fault_of("HTTP 503: overloaded"), fault_of("payment method not found"), fault_of("boom")
    ('tool', 'policy', 'unknown')
    """
    head = error[:400]
    return "tool" if _TOOL.search(head) else "policy" if _POLICY.search(head) else "unknown"
