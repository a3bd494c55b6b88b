"""SQLSTATE codes in texts of errors, and whose fault the classes of SQLSTATE are."""

from __future__ import annotations

import re
from typing import Literal

POLICY_CLASSES = frozenset({
    "07",  # dynamic SQL error: wrong number or type of parameters
    "0A",  # feature not supported
    "20", "21", "22", "23",  # case not found, cardinality, data exception, integrity constraint
    "26", "34", "36", "3F",  # names of a statement, a cursor, a schema that is none
    "42", "44",  # syntax error or access rule violation, check option of a view
    "54",  # a program limit: too complex, too many columns
})  # fmt: skip
TOOL_CLASSES = frozenset({
    "08", "28",  # connection exception, invalid authorization
    "40",  # transaction rollback: deadlock, serialization
    "53", "57", "58", "70",  # resources, operator intervention (time-outs), system error, interrupted (MySQL)
    "72", "F0", "HV", "XX",  # snapshot too old, configuration file, foreign data, internal error
})  # fmt: skip
_CODES: dict[str, Literal["tool", "policy"]] = {
    "25006": "policy",  # a read-only transaction is asked to write
    "40002": "policy",  # integrity constraint violation
    "55006": "tool", "55P03": "tool",  # object in use, lock not available
    "HYT00": "tool", "HYT01": "tool",  # ODBC: time-out of a statement, of a connection
}  # fmt: skip
_CODE = r"([0-9A-Z]{5})"
_SAYS_SO = re.compile(
    rf"(?i:\bsql_?state\b)[^\w\n]{{0,6}}{_CODE}\b|"  # SQLSTATE: 42P01, SQLSTATE[42S02], "sqlState": "42P01"
    rf"\b\d{{3,6}} \({_CODE}\)|"  # ERROR 1146 (42S02), Snowflake's 002003 (42S02)
    rf"\[{_CODE}\]\s?\[|"  # ODBC: [42S02] [Microsoft][...]
    rf"\bcode\b[\"']?: ?[\"'](\d[0-9A-Z]{{4}})[\"']"  # node-postgres: code: '42P01'
)


def sqlstate_fault(text: str) -> Literal["tool", "policy"] | None:
    """Return whose fault the first SQLSTATE of the text is; None without one, or of another class.

    Args:
        text: Of an error; a code counts only behind or in what says that it is one.

    Returns:
        "policy" where the statement is wrong, "tool" where the server or the way to it is.

    Example:
        >>> sqlstate_fault("ERROR 1146 (42S02): Table 'a.b' doesn't exist"), sqlstate_fault("SQLSTATE[08006]")
        ('policy', 'tool')
        >>> sqlstate_fault("error 42601") is None
        True

    Reference:
        ISO/IEC 9075-2 clause 24; PostgreSQL 18 Appendix A (errcodes.txt); MySQL 9 Server Error Reference;
        Apache Spark common/utils error-states.json; ODBC Appendix A.
    """
    match = _SAYS_SO.search(text)
    if match is None:
        return None
    code = next(group for group in match.groups() if group)
    if code in _CODES:
        return _CODES[code]
    if code[:2] in POLICY_CLASSES:
        return "policy"
    return "tool" if code[:2] in TOOL_CLASSES else None
