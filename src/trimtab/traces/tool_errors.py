"""Did the call fail, how, and whose fault was it? Chat logs have no error field: it must be read off the result's text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from trimtab.errors import TraceError
from trimtab.traces.error_objects import said_by
from trimtab.traces.json_records import BadJson, parse_json
from trimtab.traces.values import as_number, as_text

__all__ = [
    "BLANKS",
    "ERROR_START",
    "MAYBE_ERROR",
    "NO_ERROR",
    "ONLY_SAYS_SO",
    "Fault",
    "compile_patterns",
    "error_kind_of",
    "error_text",
    "error_words",
    "fault_of",
    "says_fine",
    "says_no_error",
    "starts_as_error",
]

Fault = Literal["tool", "policy", "unknown"]

_SERVER = (
    "too many requests|internal server error|bad gateway|service (temporarily )?unavailable|gateway time-?out"
)
_STATUS = f"bad request|unauthorized|forbidden|not found|request time-?out|conflict|internal error|{_SERVER}"
_OF = (
    "api|internal|server|client|runtime|syntax|network|connection|database|sql|http|system|validation|pars(e|ing)|execution|tool|"
    "permission|authentication|unknown|unexpected|import|compil(er|ation)|build|fatal|timeout|unhandled|"
    "mcp|json-?rpc|(in|out)put validation"
)
_AFTER = (
    "in|on|at|from|with|while|when|during|occurred|executing|running|calling|invoking|fetching|reading|writing|opening|"
    "parsing|processing|loading|getting|creating|connecting|performing|accessing|searching|retrieving"
)
_THING = r"([^\s\dn]|n[^o\s]|no[^nt\s]|not[^\s])"  # no count, and neither none, no nor not
_MORE = r"[^\s,;.)\]}\x22\x27]"  # the sentence goes on
_WHAT = (  # all but none, null, false and 0, as what is said of the error; there is no look-ahead in RE2
    rf"\s*([^\s0nf]|$|0\w|n([^ou]|$)|f([^a]|$)|no([^n]|$)|nu([^l]|$)|fa([^l]|$)|non([^e]|$)|nul([^l]|$)|fal([^s]|$)|fals([^e]|$)|"
    rf"(none|null|false)({_MORE}|[ \t]{{1,9}}{_MORE}))"
)
_STARTS = (
    rf"(error|exception)(\s{{0,9}}(:{_WHAT}|[!(>\]*]|\.\s|\.?$|[\r\n])|\s[-–—]|\s#?(0\w|[1-9])|\s({_AFTER})\b|"
    rf"\s(code|message)(\s{{0,9}}[:=]{_WHAT}|\s{{0,9}}[#(\[\x22\x27]|\s[a-z-]?(0\w|[1-9])))",
    r"traceback \(most recent call last\)",
    rf"[a-z][\w.]{{0,80}}(error|exception)\s{{0,9}}(:{_WHAT}|\(|$)",
    rf"({_OF}) (error|exception)( -?\d{{3,6}})?\s{{0,9}}(:{_WHAT}|\(|$)",
    r"an (\w{1,20} )?(error|exception) (has )?occurred( (while|when) \w{1,20}ing\b|\s{0,9}:|[.!]?\s{0,9}$|[.!] (please|try)\b)",
    r"tool_use_error>",
    rf"invalid (tool |function |input )?(arguments?|param(eter)?s?|input|request|json)( (for|to)( [\w.`-]{{1,60}}){{1,2}})?\s{{0,9}}:\s{{0,9}}{_THING}",
    rf"(file|directory|path|resource) not found(\s{{0,9}}:\s{{0,9}}({_THING}|\d{{1,9}}[^\s\d])|[.!]?\s{{0,9}}$|\s{{0,9}}[\r\n])",
    r"(unable to|could not|cannot) (resolve host(name)?|connect to ((the|remote) ){0,2}(host|server|database|proxy|api|service|endpoint|mcp|"
    r"localhost|[\w-]{1,60}[.:/]{1,3}\w))\b[^?\n]{0,120}([:.!\r\n]|$)",
    r"http(/\d(\.\d)?)?( status| error)?( code)?:? ?[45]\d\d\b",
    rf"(status |error )?(code )?:? ?[45]\d\d:? ({_STATUS})\b",
    rf"({_SERVER})\b",
    rf"failed( to\b|\s{{0,9}}:{_WHAT})",
    r"(tool|command|function|execution|request|call|operation|action|query)( [\w`]{1,40}){0,2} failed\b",
    r"(unknown|no such|invalid) (tool|function)\b",
    r"(tool|function) [^\n]{0,60}(not found|does not exist)\b",
    r"((command|process|program|script) )?(exited|finished|terminated|returned|failed) with (a )?(non-?zero )?(exit |return )?(code|status)[:= ]{0,3}-?[1-9]",
    r"(exit|return) ?(code|status)[:= ]{1,3}-?[1-9]",
    r"([\w/]{0,20}/)?(ba|z|da)?sh: [^\n]{1,200}: ",
    r"([\w/]{0,20}/)?(ba|z|da)?sh: command not found",
    r"[\w./-]{1,40}: ([^\n]{0,200}: )?(no such file or directory|command not found)",
    r"[\w./-]{1,40}: cannot (access|open|stat)\b",
    r"(fatal|panic): ",
    r"(permission|access) denied\b",
    r"segmentation fault",
    r"((request|connection|operation|tool|command|execution|read|call|query|function) ){0,2}(timed[ -]?out\b|timeout( (after|exceeded|expired|reached|waiting|while)\b|[.!]?\s{0,9}$))",
    r"connection (refused|reset|aborted|closed|failed)\b",
    r"rate limit(ed)? (exceeded|reached)\b",
    r"no replacement was performed",
    r"your proposed edit has introduced new syntax error",
    rf"\{{\x27error\x27: [\x27\x22]{_WHAT}",
)

ERROR_START = r"^[\s\[(<*❌✗⛔🚫]{0,9}(" + "|".join(_STARTS) + ")"
"""How text starts that reports an error, case aside; in the dialect that re (ASCII) and DuckDB's RE2 share, without quotes.

The last is a dict's repr: what TRL answers a call of a tool that raised. What only speaks of errors is none: `Error rate: 0 %`, `Error handling guide`, `Error: none`, `error-free`, `Errors: 0`."""

_START = re.compile(ERROR_START, re.I | re.A)
_OPENINGS = (
    "a(?:ccess|ction|pi |uthentication )|b(?:ad g|uild )|c(?:all|lient |o(?:de|mmand|mpil|nnection))|data|e(?:rror|x(?:ception|ecution|it))|"
    "f(?:a(?:iled|tal )|inished|unction)|gateway|http|i(?:mport |nternal |nvalid )|n(?:etwork |o (?:such|replacement))|operation|p(?:ars|ermission|"
    "ro(?:cess|gram))|query|r(?:ate limit|e(?:ad|quest|turn)|untime )|s(?:cript|e(?:gmentation|rver|rvice)|ql |tatus|y(?:ntax|stem) )|t(?:erminated|"
    r"ime|o(?:o many|ol)|raceback)|un(?:expected|handled|known)|validation |your proposed|:? ?[45]\d\d|\{\x27error|"
    r"an (?:\w+ )?e(?:rror|xception) |mcp |json-?rpc |(?:in|out)put val|(?:file|directory|path|resource) not|(?:unable to|could not|cannot) (?:con|res)"
)
_MAYBE = re.compile(rf"[\s\[(<*❌✗⛔🚫]*(?:[\w./-]*:|[\w.]*(?:error|exception)|{_OPENINGS})", re.A)
"""All of ERROR_START's and more, in lower case, by the first word: seven times as fast, and most text is no error."""

MAYBE_ERROR = (
    r"^[\v\t\n\f\r \[(<*❌✗⛔🚫]*(?:[\w.]*(?:error|exception)|[\w/]*sh: |(?:fatal|panic): |"
    rf"[\w./-]+: (?:cannot |[^\n]*(?:no such file|command not found))|{_OPENINGS})"
)
"""The same for RE2, case aside, which compiles it for each shard: ERROR_START costs it fifteen times as much. It may look on to the line's end."""

_HEAD = 112  # characters that _MAYBE looks at: nine before a name of 81 and `exception`
_CLASS = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Timeout)\b")
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|(?<!\S)(?<!http )(?<!status )\S*\d\S*", re.I)
_REPR = re.compile(r"\A\{'error': (['\"])(.*)\1\}\s*\Z", re.S)
_LEAD = re.compile(
    r"^[\s\[(<*❌✗⛔🚫]*(?:an error occurred while running the tool\. please try again\. error|(?:tool_use_)?error|exception)\b[\])>*:!.\s–—-]*",
    re.I,
)
_TAG_END = re.compile(r"\s*</(?:tool_use_)?(?:error|exception)>\s*\Z", re.I)
_NUMBERED = re.compile(r"(?:code|status|status_code) -?\d+")
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

    >>> [starts_as_error(text) for text in ("ERROR 7", "KeyError: 'a'", "HTTP 503 Service Unavailable", "bash: foo: command not found")]
    [True, True, True, True]
    >>> [starts_as_error(text) for text in ("Errors: 0", "Error rate: 0 %", "error-free", "ok")]
    [False, False, False, False]
    """
    return _MAYBE.match(text[:_HEAD].lower()) is not None and _START.match(text) is not None


def error_text(result: str | None) -> str:
    """The error a result's text says it is; empty when it says none. A rule of thumb: text that starts as an error, or a
    JSON object with an `error`, an `is_error`, a `status` of error or of 400 and more, a `success` or `ok` of false, or an exit code.

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


_FIELD = re.compile(r'"(?:is_?error|error\w*|status(?:_code)?|success|ok|exit_?code|return_?code)"', re.I)
NO_ERROR, BLANKS = ("", "false", "none", "null", "0", "0.0", "{}", "[]"), " \t\n\v\f\r"
"""What an error field says where there was no error, case and blanks around it aside."""
ONLY_SAYS_SO = ("true", "1", "1.0")
"""An error field that says that there was one, and not which: the result does."""
_TEXTS = ("error", "error_message", "errorMessage", "error_msg")
_CODES = ("exit_code", "exitCode", "returncode", "return_code")


def _json_error(value: dict[str, Any]) -> str:
    for name in _TEXTS:
        if not says_no_error(value.get(name)):
            return as_text(value[name]) or "error"
    status = next((value[name] for name in ("status", "status_code") if name in value), None)
    number = as_number(status) if not isinstance(status, bool) else None
    left = next((value[name] for name in _CODES if name in value), None)
    said = ""
    if any(value.get(name) is True for name in ("is_error", "isError")):
        said = "error"
    elif str(status).lower() in ("error", "failed", "failure") or (
        number is not None and 400 <= number < 600
    ):
        said = f"status {status}"
    elif any(value.get(name) is False for name in ("success", "ok")):
        said = "no success"
    elif isinstance(left, int) and not isinstance(left, bool) and left:
        said = f"exit code {left}"
    if not said:
        return ""
    given = next(
        (value[k] for k in ("message", "detail", "reason", "content", "stderr") if value.get(k)), said
    )
    return as_text(given) or "error"


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


def compile_patterns(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """A user's own patterns of error texts, searched anywhere in a result, case aside. TraceError for one that is no regular expression."""
    found = []
    for text in patterns:
        try:
            found.append(re.compile(text, re.I))
        except re.error as error:
            raise TraceError(f"--error-pattern {text!r} is no regular expression: {error}") from error
    return tuple(found)


def error_kind_of(error: str) -> str:
    """What errors of one kind share: the exception's class, or the first line, of a JSON object its message, without numbers, ids and quoted
    names; an HTTP status stays.

    >>> error_kind_of("Error: flight HAT030 not available on date 2024-05-13")
    'flight # not available on date #'
    >>> error_kind_of("Traceback (most recent call last):\\n  x\\nkeys.KeyError: 'a'")
    'keys.KeyError'
    >>> error_kind_of("{'error': 'no row 7'}"), error_kind_of('{"message": "no row 7", "code": 404}'), error_kind_of('{"code": 500}')
    ('no row #', 'no row #', 'code 500')
    """
    shown = _REPR.match(error[:4_000])
    error = shown[2] if shown else error
    found = _CLASS.search(error[:4_000])
    if found and found.group().lower() != "error":
        return found.group()[:80]
    text = _LEAD.sub("", error[:_MAX_JSON]).strip()
    if said := said_by(text):
        if _NUMBERED.fullmatch(said):
            return said
        text = _LEAD.sub("", said).strip()
    lines = text[:400].splitlines()
    line = _TAG_END.sub("", lines[0]) if lines else ""
    return _VARIABLE.sub("#", line)[:80].strip() or "error"


def fault_of(error: str) -> Fault:
    """Whose fault: the tool's (time-outs, connections, HTTP 5xx and 429) or the policy's (its call was wrong)? By its words.

    >>> fault_of("HTTP 503: overloaded"), fault_of("payment method not found"), fault_of("boom")
    ('tool', 'policy', 'unknown')
    """
    head = error[:400]
    return "tool" if _TOOL.search(head) else "policy" if _POLICY.search(head) else "unknown"
