"""Errors that say that there is no such tool; what an existing tool did not find is another matter."""

from __future__ import annotations

import re
from functools import lru_cache

_NONE = r"(?:not found|(?:does not|doesn't) exist|(?:(?:is|was) )?(?:unknown|(?:not|un)[ -]?(?:recogni[sz]ed|registered|available|known|supported)))"
_NOT_ITS_NAME = r"(?:calls?|results?|outputs?|inputs?|arguments?|args|parameters?|params|responses?|errors?|definitions?|schemas?|choice|use)\b"
_NAME = rf"(?!{_NOT_ITS_NAME})[`'\"]?[\w][\w.:/-]{{0,79}}(?<![.:/-])[`'\"]?"
_UNKNOWN_TOOL = re.compile(
    rf"\b(?:unknown|no such|unsupported|unrecogni[sz]ed|unregistered|unavailable|non-?existent|undefined) "
    rf"(?:tool|function)\b(?! (?:{_NOT_ITS_NAME}|or\b))|"
    r"\btool[_-]not[_-]found\b|\btool [`'\"]?[\w.:/-]{1,80}[`'\"]? is not (?:in|on|among|part of) the "
    r"(?:list of )?(?:allowed |available |given )?tools?\b|"
    rf"\binvalid (?:tool|function)(?: name)?(?:\s*:|\s+[`'\"])|\bno (?:tool|function) (?:is "
    rf")?(?:named|called|with (?:the )?name)\b|"
    rf"\b(?:tool|function)(?: (?:named |called )?{_NAME})? {_NONE}\b|\bnot a (?:valid|known) tool\b|"
    rf"\Aunsupported (?:custom tool )?call: {_NAME}",  # Codex'
    re.I,
)


def says_unknown_tool(error: str) -> bool:
    """Does the error say that there is no such tool?

    >>> says_unknown_tool("No tool named 'web' found"), says_unknown_tool("Tool 'web' not recognized")
    (True, True)
    >>> (says_unknown_tool("Error executing tool get_user: User u17 not found"),
    ...     says_unknown_tool("function load(): file not found"))
    (False, False)
    """
    return _says_unknown(error[:400])


@lru_cache(4096)
def _says_unknown(head: str) -> bool:
    low = head.lower()
    named = any(
        word in low for word in ("tool", "function", "unsupported call")
    )  # in all that the pattern matches
    return named and _UNKNOWN_TOOL.search(head) is not None
