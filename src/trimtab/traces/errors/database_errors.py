"""Errors of databases: is the statement wrong (the policy's fault), or the server or the way to it (the
tool's)?

A table or column that does not exist, a syntax error, a type or a constraint are the statement's. A locked
database, a lost connection, a full disk, a time-out are not. The words are those of the engines.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from trimtab.traces.errors.sqlstate import sqlstate_fault

_QUOTED = re.compile(r"'[^'\s]{0,200}'|\"[^\"\s]{0,200}\"|`[^`\n]{0,200}`")
_STATEMENT = re.compile(r"\n?\s*(?:\[SQL: |LINE \d+: |== SQL ==|\[parameters: )|\bat \[\d+:\d+\]\n")
"""What follows is the statement, whose names may be any word."""
_NAMED = re.compile(r"(\bno such \w+: |unrecognized name: |ambiguous column name: )\S+", re.I)
_OBJECTS = (
    "relation|column|table|view|function|procedure|operator|type|schema|sequence|constraint|index|cursor|"
    "aggregate|prepared statement|dataset|catalog|trigger|collation|object|variable|macro"
)

_TOOL = (
    # SQLite: sqlite.org/rescode.html, texts of sqlite3_errstr
    r"database (?:table |schema )?is (?:locked|busy)|locking protocol|disk I/O error|"
    r"disk image is malformed|database or disk is full|unable to open database file|"
    r"file is not a database|"
    r"\bSQLITE_(?:BUSY|LOCKED|IOERR|FULL|CANTOPEN|CORRUPT|NOMEM|PROTOCOL|INTERRUPT|NOTADB)",
    # PostgreSQL: classes 08, 40, 53, 57, 58; libpq
    r"cancell?ing statement due to|terminating connection|deadlock (?:detected|found)|"
    r"could not serialize access|could not obtain lock|server closed the connection|"
    r"connection to server .{1,200} failed|could not connect to server|"
    r"too many (?:clients|connections)\b|remaining connection slots|the database system is|"
    r"password authentication failed|no pg_hba\.conf entry|SSL SYSCALL|no space left on device|"
    r"could not (?:extend|fsync) file|out of (?:shared |sort )?memory|"
    r"(?-i:\bFATAL): {1,2}(?:database|role|sorry|terminating|password|remaining)",
    # MySQL and MariaDB: 1021, 1040, 1045, 1114, 1203, 1205, 1213, 1226, 1317, 3024, 2000 to 2069 (client)
    r"server has gone away|lost connection to|can't connect to|lock wait timeout|"
    r"more than '' active connections|has exceeded the '' resource|query execution was interrupted|"
    r"maximum statement execution time|disk full\b|the table '' is full|from storage engine|"
    r"access denied for user .{0,120}\(using password|server shutdown in progress|\(20[0-6]\d, ",
    # DuckDB: src/common/exception.cpp
    r"\b(?:IO|Connection|HTTP|Out of Memory|Missing Extension|Serialization) Error: |"
    r"(?-i:\b(?:INTERNAL|FATAL|INTERRUPT) Error): |TransactionContext Error: |"
    r"could not set lock on file|conflicting lock is held|transaction conflict",
    # SQL Server: 1105, 1205, 1222, 4060, 9002, 18456, 40501, 40613; drivers
    r"deadlocked on|lock request time ?out|could not allocate (?:space|a new page)|"
    r"transaction log for database|login failed for user|requested by the login|"
    r"network-related or instance-specific|transport-level error|TCP Provider|"
    r"communication link failure|communications link failure|timeout expired|"
    r"is not currently available|\bMsg \d+, Level (?:13|1[7-9]|2\d)\b",
    # BigQuery: reasons of cloud.google.com/bigquery/docs/error-messages
    r"\b(?:backendError|internalError|(?:job)?rateLimitExceeded|quotaExceeded|tableUnavailable|resourceInUse)\b|"
    r"exceeded (?:your |rate limits|quota)|quota exceeded",
    # Snowflake
    r"authentication token has expired|no active warehouse selected|"
    r"warehouse .{0,80}cannot be resumed|resource monitor|reached its (?:statement|warehouse)|"
    r"sql execution cancell?ed|session no longer exists",
    # Spark
    r"\bExecutorLostFailure\b|\bFetchFailed|SparkContext (?:was|has been) shut ?down|"
    r"\bOutOfMemoryError\b",
    # DB-API drivers
    r"connection (?:is |was |has been )?(?:already |not )?(?:closed|open)\b|"
    r"cursor (?:is |already )?closed|closed (?:database|connection|cursor)\b|statement timeout|"
    r"query timeout|execution timeout",
)
_POLICY = (
    # SQLite: messages of SQLITE_ERROR (src/resolve.c, expr.c, select.c, insert.c, build.c) and constraints
    r"\bno such (?:table|column|function|index|view|collation sequence|module|savepoint|window)\b|"
    r"\bno such (?:trigger|database)\b|"
    r"near '': syntax error|unrecognized token|incomplete input\b|ambiguous column name|"
    r"misuse of (?:aggregate|window|aliased)|wrong number of arguments to function|"
    r"has no column named|has \d+ columns? but \d+ values|sub-select returns \d+ columns|"
    r"same number of (?:result )?columns|\bconstraint failed|datatype mismatch|order by term|"
    r"having clause on a non-aggregate|group by clause is required|integer overflow|malformed JSON|"
    r"only execute one statement|row value misused|readonly database|"
    rf"\b(?:{_OBJECTS})\b[^\n:]{{1,120}} already exists|within a transaction",
    # PostgreSQL: classes 21, 22, 23, 25006, 42
    rf"\b(?:{_OBJECTS})\b[^\n:]{{0,200}}\bdoes(?: not|n't) exist|\boperator does not exist|"
    r"syntax error (?:at or near|at end of|in sql|line \d)|FROM-clause entry|"
    r"must appear in the GROUP BY|are not allowed in (?:WHERE|GROUP BY|HAVING|FROM|JOIN|UPDATE)|"
    r"invalid input syntax for|(?<!ZeroDivisionError: )(?<!float )division by zero|divide by zero|"
    rf"divided by 0|duplicate key value|violates [\w -]{{1,20}} constraint|"
    r"permission denied for (?:table|relation|schema|view|sequence|function|column)|"
    r"column reference '' is ambiguous|more than one row returned by a subquery|subquery must return|"
    r"more expressions than target columns|more target columns than|read-only transaction|"
    r"(?:int|integer|field value) out of range|value too long for type|\bcannot cast\b|"
    r"must be type boolean, not type|unterminated quoted",
    # MySQL and MariaDB: 1048 to 1066, 1136, 1146, 1241, 1242, 1248, 1364, 1366, 1406, 1451, 1452, 1582
    r"unknown (?:column|table|database)\b|error in your SQL syntax|column '' in .{1,40} is ambiguous|"
    r"duplicate entry|data too long for column|incorrect \w{1,20} value|column count doesn't match|"
    r"operand should contain|subquery returns more than|must have its own alias|"
    r"not in GROUP BY clause|contains nonaggregated column|invalid use of group function|"
    r"not unique table/alias|foreign key constraint fails|doesn't have a default value|"
    r"incorrect parameter count|command denied to user",
    # SQL Server: 102 to 245, 207, 208, 515, 547, 2627, 2812, 4104, 8120, 8134, 8152
    r"invalid (?:object|column) name|incorrect syntax near|unclosed quotation mark|"
    r"multi-part identifier|invalid in the (?:select list|having clause|order by clause)|"
    r"is not a recognized|conversion failed when|error converting data type|"
    r"conflicted with the .{1,40} constraint|violation of .{1,40} constraint|"
    r"could not find stored procedure|must declare the scalar variable|binary data would be truncated|"
    r"arithmetic overflow|cannot insert the value NULL|\bMsg \d+, Level 1[12456]\b",
    # DuckDB
    r"\b(?:Catalog|Parser|Binder|Conversion|Constraint|Invalid Input|Out of Range) Error: |"
    r"\b(?:Not implemented|Mismatch Type|Dependency|Permission|Expression) Error: ",
    # BigQuery
    r"unrecognized name: |syntax error: |no matching signature for|"
    r"(?:function|model|routine) not found: |"
    r"\bnot found: (?:table|dataset|project|model|routine|view)\b|must be qualified with a dataset|"
    r"\b(?:invalidQuery|responseTooLarge)\b|neither grouped nor aggregated|"
    r"column name .{0,80} is ambiguous",
    # Snowflake
    r"SQL compilation error|invalid identifier|does not exist or not authorized|"
    r"value '' is not recognized",
    # Spark: common/utils error-conditions.json, and messages before 3.4
    r"table or view not found|"
    r"cannot (?:be )?resolved?\b[^\n]{0,80}(?:given input columns|did you mean)|mismatched input ''|"
    r"no viable alternative at input|\b(?:AnalysisException|ParseException): |"
    r"\[(?:TABLE_OR_VIEW_NOT_FOUND|UNRESOLVED_\w+|PARSE_\w+|DATATYPE_MISMATCH|CAST_INVALID_INPUT|MISSING_\w+)",
    # DB-API (PEP 249)
    r"\b(?:IntegrityError|DataError)\b",
)
_FILES = re.compile(r"IO Error: (?:no files found|cannot open file [^\n]{0,300}no such file)", re.I)
"""DuckDB's of a file that the statement names."""
_LATE = re.compile(r"time-?out\b|timed out|execution time exceeded|HYT0[01]", re.I)
_ANY_TOOL = re.compile("|".join(_TOOL), re.I)
_ANY_POLICY = re.compile("|".join(_POLICY), re.I)
_MAX_READ, _TAIL = 2_000, 400  # characters that are read: the first, and of a traceback the last
_WORDS = (
    "sql", "lock", "disk", "connect", "column", "table", "database", "constraint", "exist", "syntax",
    "no such", "statement", "memory", "quota", "duplicate", "division", "divide", "fatal: ", "ambiguous",
    "aggregate", "permission denied", "cursor", "io error", "http error", "fatal error", "internal error",
    "interrupt", "catalog", "parser", "binder", "range error", "conversion", "invalid input",
    "not implemented", "mismatch", "dependency error", "expression", "serializ", "extension", "clause",
    "group by", "identifier", "union", "expired", "timeout", "time-out", "unrecognized", "msg ", "(20",
    "too many", "warehouse", "session no", "fetchfailed", "executor", "resourceinuse", "sparkcontext",
    "subquery", "read-only", "ratelimit", "transaction", "readonly", "overflow", "malformed", "no space",
    "incorrect", "operand", "operator", "alias", "recogni", "cast", "procedure", "signature",
    "unterminated", "query", "incomplete", "misuse", "backenderror", "internalerror", "analysisexception",
    "parseexception", "integrityerror", "dataerror", "responsetoolarge", "authentication token",
    "unresolved", "resource monitor", "invalid object", "login failed", "is full", "remaining", "pg_hba",
    "gone away", "server closed", "server shutdown", "function", "could not", "by login", "the login",
    "closed", "exceeded", "truncated", "not found: ", "rows returned", "integer out", "field value",
    "value null", "scalar variable", "currently available", "access denied", "row value", "default value",
    "must be type", "order by", "tcp provider", "storage engine", "parse_", "cast_", "missing_", "code",
)  # fmt: skip
"""One of them is in all that is matched: most errors of other tools have none."""


def database_fault(error: str) -> Literal["tool", "policy"] | None:
    """Return whose fault a database's error is, by its words and its SQLSTATE.

    What the server or the way to it met counts before what the statement lacks; names in quotes, and the
    statement that some drivers append, do not count.

    Args:
        error: Text of the error, as the engine, its driver or an ORM wrote it.

    Returns:
        "policy" for a wrong statement, "tool" for locks, connections, disks, memory, time-outs and refused
        logins; None for what is not known as a database's error.

    Example:
        >>> database_fault("OperationalError: no such table: users"), database_fault("database is locked")
        ('policy', 'tool')
        >>> database_fault("KeyError: 'table'") is None
        True

    Reference:
        Messages of SQLite 3.40, PostgreSQL 18, MySQL 9, DuckDB 2.0, SQL Server 2022, BigQuery, Snowflake and
        Spark 4; ISO/IEC 9075-2 clause 24 for SQLSTATE.
    """
    head = error[:_MAX_READ]
    if len(error) > _MAX_READ:
        head = f"{head}\n{error[-_TAIL:]}"
    low = head.lower()
    if not any(word in low for word in _WORDS):
        return None
    statement = _STATEMENT.search(head)
    shown = _NAMED.sub(r"\1''", _QUOTED.sub("''", head[: statement.start()] if statement else head))
    return _by_words(shown) or sqlstate_fault(head) or _statement_fault(shown)


def database_blame(error: str) -> Literal["policy", "tool", "infrastructure", ""]:
    """Return the same as the blame of a live call: a time-out is the tool's, what else befell the database
    the infrastructure's; "" for what is not known as a database's error.

    >>> [database_blame(text) for text in ("no such table: a", "disk full", "query timeout", "boom")]
    ['policy', 'infrastructure', 'tool', '']
    """
    fault = database_fault(error)
    if fault == "tool":
        return "tool" if _LATE.search(error[:_MAX_READ]) else "infrastructure"
    return fault or ""


@lru_cache(4096)
def _by_words(shown: str) -> Literal["tool", "policy"] | None:
    if _FILES.search(shown):
        return "policy"
    return "tool" if _ANY_TOOL.search(shown) else None


@lru_cache(4096)
def _statement_fault(shown: str) -> Literal["policy"] | None:
    return "policy" if _ANY_POLICY.search(shown) else None
