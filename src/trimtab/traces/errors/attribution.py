"""Attribution of an error to the tool or to the policy, by its words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from trimtab.traces.errors.database_errors import database_fault

Fault = Literal["tool", "policy", "unknown"]

_PROGRAM = re.compile(
    r"(?:^|[\s:(.])(?:Name|Type|Key|Index|Attribute|Syntax|Indentation|Tab|Assertion|UnboundLocal|ZeroDivision|Recursion|Import|ModuleNotFound|"
    r"FileNotFound|NotADirectory|IsADirectory|FileExists|Lookup|Unicode\w{0,9}|Overflow|Reference|JSONDecode)Error\b(?=\s*(?:[:(]|$))",
    re.M,
)
"""Errors of a program by their class: a word that they use may be of a name of its own."""

_ASSERTED = re.compile(r"\bAssertionError\b")

_QUOTED = re.compile(r"'[^'\s]*'|\"[^\"\s]*\"|`[^`\s]*`")
_SERVER = r"(?:429|5\d\d)\b(?![.,]\d)"
_PHRASES = (
    r"too many|internal|not implemented|bad gateway|service|gateway|http version|variant|insufficient|loop|not extended|network|server|overload|"
    r"bandwidth|unknown error|web server|connection|origin|ssl|invalid ssl|site"
)
_NO_STATUS = "".join(
    f"(?<!{word} )"
    for word in (
        "zip", "area", "post", "postal", "promo", "coupon", "discount", "exit", "return", "country",
        "product",
    )
)  # fmt: skip
_GONE = (
    r"\b(?:services?|servers?|hosts?|api|backend|upstream|tools?|endpoint|system|database|network|model|gateway|proxy|cluster|node|site)"
    r"(?: (?:is|was|are|currently|now)){0,2} ?unavailable\b|\A\W*(?:error\W+)?unavailable\b|\bcode = unavailable\b"
)
"""A service's, not a seat's."""
_NOT_ASKED = r"(?<!invalid )(?<!value for )(?<!value of )(?<!parameter: )(?<!argument: )(?<!field: )(?<!option: )(?<!missing )(?<!bad )(?<!argument )(?<!parameter )(?<!keyword )(?<!option )(?<!field )(?<!column )"
_NOT_JUDGED = r"(?! (?:must|should|has to|may|can|cannot|is (?:not )?(?:a|an|too|in|re|un|def|miss|expect)|value|argument|parameter|option|field|out of range)\w*)(?!: ?(?:must|should|value|input|invalid|not a|field|expected))"
_STATUS = re.compile(
    rf"\bhttp(?:/\d(?:\.\d)?)?(?:[ _-]?(?:status|error|code|exception|response))*[\"']?\s*[:=(]?\s*[\"']?{_SERVER}|"
    rf"(?=status|code)(?<![#\w]){_NO_STATUS}(?:status|code)(?:[ _]?code)?(?: of)?[\"']?\s*[:=(]?\s*[\"']?{_SERVER}|"
    rf"\berror \(?{_SERVER}|\b(?:server|api|upstream|backend) (?:has )?(?:returned|responded(?: with)?|answered(?: with)?|said)(?: an?)? {_SERVER}"
)
"""A server's status behind what says so, in lower case."""
_SAYS_STATUS = ("http", "status", "code", "error", "server", "api", "upstream", "backend")
"""One of them is in all that _STATUS matches."""
_ONLY_STATUS = re.compile(rf"\W*{_SERVER}\W*\Z")
_STATUS_PHRASE = re.compile(rf"(?:429|5\d\d)(?<![#\w.]\d\d\d)\b(?![.,]\d):? (?:{_PHRASES})")
_HAPPENED = re.compile(
    r"\btimed[ -]?out\b|\bdeadline[ _]?exceeded|"
    r"\bconnection(?: (?:was|is|has been|pool|attempt|to [^\s,]{1,80}|with [^\s,]{1,80}|at [^\s,]{1,80}|unexpectedly|forcibly)){0,3}[ -](?:refused|reset|closed|aborted|errors?|failed|failure|"
    r"lost|timed|dropped|terminated|broken|interrupted|unavailable|could not|cannot)\b|\b[a-z.]*connect(?:ion)?[a-z]*(?:error|exception|refused|reset)\b|"
    r"\b[a-z.]*(?:[a-z.]time-?out|timeout(?:error|exception|expired))\b(?=\s*[:(]|\s*$)|"
    r"\bERR_CONNECTION_|\bECONN(?:REFUSED|RESET|ABORTED)\b|\bETIMEDOUT\b|\bEAI_AGAIN\b|\bE(?:HOST|NET)UNREACH\b|\bEPIPE\b|\bbroken pipe\b|\bsocket hang up\b|"
    r"\bno route to host\b|reset by peer|\btoo many requests\b|\binternal ?(?:server ?)?error|bad ?gateway",
    re.I | re.M,
)
"""What befell the tool, whatever class of error its text names besides."""

_TOOL = re.compile(
    rf"\b(?=[a-z.]*time-?out){_NOT_ASKED}[a-z.]*time-?out(?:error|exception|expired)?\b(?!=|\(|: command not found){_NOT_JUDGED}|"
    r"\b(?:no|lost|failed|broken|dropped|bad|new|establish|establishing|lost the|establish a|open a) connection\b(?! (?:string|id|name|type|field|argument|between|from|found|for)\b)|"
    r"\b(?:unable to|could not|cannot|can't|failed to) (?:re)?connect\b|"
    r"\bdns (?:error|failure|failed|lookup|resolution|server|query|timed)|\bname resolution\b|"
    r"\btemporarily\b|\btemporary (?:failure|error|problem|issue|outage|server)|"
    rf"\bunreachable\b|{_GONE}|\brate[ _-]?limit\w*{_NOT_JUDGED}|overloaded|\bover ?capacity\b|\bout of memory\b",
    re.I,
)
"""Words of it that an error of the program's own may use of something else."""

_WORDS = (
    "out", "deadline", "conn", "unavailable", "unreach", "rate", "too many", "internal", "gateway", "overloaded", "capacity", "memory", "reset",
    "dns", "resolution", "tempor", "pipe", "hang up", "route", "eai_",
)  # fmt: skip
"""One of them is in all that _HAPPENED and _TOOL match: most errors have none, and a search costs a hundred
times as much."""
_NUMBER = re.compile(r"(?:429|5\d\d)\b(?![.,]\d)")
_POLICY = re.compile(r"\b(?:40[0134]|422)\b")
_POLICY_WORDS = (
    "invalid", "missing", "required", "not found", "unknown", "no such", "unexpected", "malformed", "pars", "json", "argument", "schema",
    "does not", "cannot", "not enough", "not available", "not allowed", "permission", "exceed", "must ", "syntax error",
    "unsupported", "failed to find", "has not been read", "no replacement",
)  # fmt: skip


def fault_of(error: str) -> Fault:
    """Return whose fault an error is: the tool's (time-outs, connections, HTTP 5xx and 429, a database that is
    locked or gone) or the policy's (a wrong call, a wrong statement).

    A number is a status where its text says so, a time-out or a connection counts where it happened, not
    where it is a name: of a field, in quotes, or in an error of the program's own. A server's error stays one
    where it names the exception behind it.

    >>> fault_of("HTTP 503: overloaded"), fault_of("payment method not found"), fault_of("boom")
    ('tool', 'policy', 'unknown')
    >>> fault_of("limit must be at most 500"), fault_of("KeyError: 'timeout'"), fault_of("status 520")
    ('policy', 'unknown', 'tool')
    >>> fault_of("HTTP 500: KeyError: 'user_id'"), fault_of("no such table: timeout")
    ('tool', 'policy')
    """
    head = error[:400]
    if _has_status(head):
        return "tool"
    return database_fault(error) or _fault_of(head)


def _is_status(low: str) -> bool:
    by_phrase = any(word in low for word in _SAYS_STATUS) and _STATUS.search(low)
    return bool(by_phrase or _STATUS_PHRASE.search(low) or _ONLY_STATUS.match(low))


def _shown(head: str) -> str:
    """Without names in quotes; an object's words are all in quotes."""
    return head if head.lstrip("[( \n\tEeRrOo:").startswith("{") else _QUOTED.sub("''", head)


def _before_assertion(shown: str) -> str:
    """What a test expected, happened to nobody."""
    asserted = _ASSERTED.search(shown)
    return shown[: asserted.start()] if asserted else shown


def _has_status(head: str) -> bool:
    """Does the text name the status of a server that failed or is too busy?"""
    if not _NUMBER.search(head):
        return False
    shown = _shown(head)
    return bool(_NUMBER.search(shown.lower())) and _is_status(_before_assertion(shown).lower())


@lru_cache(4096)
def _fault_of(head: str) -> Fault:
    shown = _shown(head)
    if any(word in shown.lower() for word in _WORDS):
        if _HAPPENED.search(_before_assertion(shown)):
            return "tool"
        if not _PROGRAM.search(head) and _TOOL.search(shown):
            return "tool"
    low = head.lower()
    return "policy" if any(word in low for word in _POLICY_WORDS) or _POLICY.search(low) else "unknown"
