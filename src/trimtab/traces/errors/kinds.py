"""What errors of one kind share."""

from __future__ import annotations

import re
from functools import lru_cache

from trimtab.traces.errors.json_errors import said_by

_CLASS = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Timeout)\b")
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|(?<!\S)(?<!http )(?<!status )\S*\d\S*", re.I)
_REPR = re.compile(r"\A\{'error': (['\"])(.*)\1\}\s*\Z", re.S)
_LEAD = re.compile(
    r"^[\s\[(<*❌✗⛔🚫]*(?:an error occurred while running the tool\. please try again\. "
    r"error|(?:tool_use_)?error|exception)\b[\])>*:!.\s–—-]*",
    re.I,
)
_TAG_END = re.compile(r"\s*</(?:tool_use_)?(?:error|exception)>\s*\Z", re.I)
_NUMBERED = re.compile(r"(?:code|status|status_code) -?\d+")
_ENDINGS = ("Error", "Exception", "Timeout")
_MAX_READ = 20_000  # characters of an error that are looked at


def error_kind_of(error: str) -> str:
    """What errors of one kind share: the exception's class, or the first line, of a JSON object its message,
    without numbers, ids and quoted names; an HTTP status stays.

    >>> error_kind_of("Error: flight HAT030 not available on date 2024-05-13")
    'flight # not available on date #'
    >>> error_kind_of("Traceback (most recent call last):\\n  x\\nkeys.KeyError: 'a'")
    'keys.KeyError'
    >>> (error_kind_of("{'error': 'no row 7'}"), error_kind_of('{"message": "no row 7", "code": 404}'),
    ...     error_kind_of('{"code": 500}'))
    ('no row #', 'no row #', 'code 500')
    """
    return _kind_of(error[:_MAX_READ])


def _class_in(text: str) -> re.Match[str] | None:
    """Return the first class of an error. The search starts at the word with the first ending of one: it
    costs most where there is none."""
    at = min((i for ending in _ENDINGS if (i := text.find(ending)) >= 0), default=-1)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_."):
        at -= 1
    return None if at < 0 else _CLASS.search(text, at)


@lru_cache(4096)
def _kind_of(error: str) -> str:
    shown = _REPR.match(error[:4_000]) if error.startswith("{'error'") else None
    error = shown[2] if shown else error
    match = _class_in(error[:4_000])
    if match and match.group().lower() != "error":
        return match.group()[:80]
    text = _LEAD.sub("", error).strip()
    if message := said_by(text):
        if _NUMBERED.fullmatch(message):
            return message
        text = _LEAD.sub("", message).strip()
    lines = text[:400].splitlines()
    line = _TAG_END.sub("", lines[0]) if lines else ""
    return _VARIABLE.sub("#", line)[:80].strip() or "error"
