"""Patterns of texts that report an error, by how they start, in the dialect that Python's re and DuckDB's RE2
share; and by a user's own patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trimtab.errors import TraceError

_SERVER = (
    "too many requests|internal server error|bad gateway|service (temporarily )?unavailable|gateway time-?out"
)
_STATUS = f"bad request|unauthorized|forbidden|not found|request time-?out|conflict|internal error|{_SERVER}"
_OF = (
    "api|internal|server|client|runtime|syntax|network|connection|database|sql|http|system|validation|pars(e|ing)|execution|tool|"
    "permission|authentication|unknown|unexpected|import|compil(er|ation)|build|fatal|timeout|unhandled|"
    "mcp|json-?rpc|(in|out)put validation|"
    "catalog|binder|parser|conversion|constraint|io|out of (memory|range)|invalid input"  # DuckDB's
)
_AFTER = (
    "in|on|at|from|with|while|when|during|occurred|executing|running|calling|invoking|fetching|reading|writing|opening|"
    "parsing|processing|loading|getting|creating|connecting|performing|accessing|searching|retrieving"
)
_THING = r"([^\s\dn]|n[^o\s]|no[^nt\s]|not[^\s])"  # no count, and neither none, no nor not
_MORE = r"[^\s,;.)\]}\x22\x27]"  # the sentence goes on
_WHAT = (  # all but none, null, false and 0, as what is said of the error; RE2 has no look-ahead
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
    r"(tool|function) [^\n]{0,60}(not found|does not exist|not recogni[sz]ed)\b",
    r"(tool|function) [\w.\x27\x22`-]{1,80} is not available\b",
    r"(there is )?no (tool|function) (named|called|with (the )?name)\b",
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
    # SQLite's, PostgreSQL's and SQL Server's own texts, as a tool passes them on
    r"(no such (table|column|function|index|view|module)|ambiguous column name|unrecognized token): \S",
    r"near \x22[^\n]{0,80}\x22: syntax error",
    r"(unique|not null|check|foreign key|primary key) constraint failed\b",
    r"database is locked\s{0,9}$",
    r"(relation|column|function|operator|schema) [^\n]{1,120} does not exist\s{0,9}($|[\r\n])",
    r"syntax error at (or near|end of input)\b",
    r"msg \d{1,6}, level \d{1,2}\b",
    rf"\{{\x27error\x27: [\x27\x22]{_WHAT}",
)

ERROR_START = r"^[\s\[(<*❌✗⛔🚫]{0,9}(" + "|".join(_STARTS) + ")"
"""How text starts that reports an error, case aside; in the dialect that re (ASCII) and DuckDB's RE2 share,
without quotes.

The last is a dict's repr: what TRL answers a call of a tool that raised. What only speaks of errors is none:
`Error rate: 0 %`, `Error handling guide`, `Error: none`, `error-free`, `Errors: 0`."""

_START = re.compile(ERROR_START, re.I | re.A)
_OPENINGS = (
    "a(?:ccess|ction|mbig|pi |uthentication )|b(?:ad g|inder |uild )|c(?:a(?:ll|talog )|heck |lient |o(?:de|lumn|mmand|mpil|nnection|nstraint |nversion ))|data|e(?:rror|x(?:ception|ecution|it))|"
    "f(?:a(?:iled|tal )|inished|oreign |unction)|gateway|http|i(?:mport |nternal |nvalid |o )|msg |n(?:e(?:ar |twork )|o(?: (?:such|replacement|tool|function)|t null ))|"
    "o(?:perat|ut of )|"
    "p(?:ars|ermission|rimary |"
    "ro(?:cess|gram))|query|r(?:ate limit|e(?:ad|lation|quest|turn)|untime )|s(?:c(?:hema|ript)|e(?:gmentation|rver|rvice)|ql |tatus|y(?:ntax|stem) )|t(?:erminated|here is no |"
    r"ime|o(?:o many|ol)|raceback)|un(?:expected|handled|ique |known|recog)|validation |your proposed|:? ?[45]\d\d|\{\x27error|"
    r"an (?:\w+ )?e(?:rror|xception) |mcp |json-?rpc |(?:in|out)put val|(?:file|directory|path|resource) not|(?:unable to|could not|cannot) (?:con|res)"
)
_MAYBE = re.compile(rf"[\s\[(<*❌✗⛔🚫]*(?:[\w./-]*:|[\w.]*(?:error|exception)|{_OPENINGS})", re.A)
"""All of ERROR_START's and more, in lower case, by the first word: seven times as fast, and most text reports
none."""

_HEAD = 112  # characters that _MAYBE looks at: nine before a name of 81 and `exception`


def starts_as_error(text: str) -> bool:
    """Does the text start as an error report?

    >>> [starts_as_error(text) for text in ("ERROR 7", "KeyError: 'a'", "HTTP 503 Service Unavailable",
    ...     "bash: foo: command not compiled")]
    [True, True, True, True]
    >>> [starts_as_error(text) for text in ("Errors: 0", "Error rate: 0 %", "error-free", "ok")]
    [False, False, False, False]
    """
    return _MAYBE.match(text[:_HEAD].lower()) is not None and _START.match(text) is not None


def compile_patterns(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """A user's own patterns of error texts, searched anywhere in a result, case aside. TraceError for one
    that is not a regular expression."""
    compiled = []
    for text in patterns:
        if not text:
            raise TraceError(
                "--error-pattern is empty, which every result would match; leave it out or name a pattern"
            )
        try:
            compiled.append(re.compile(text, re.I))
        except re.error as error:
            raise TraceError(f"--error-pattern {text!r} is not a regular expression: {error}") from error
    return tuple(compiled)
