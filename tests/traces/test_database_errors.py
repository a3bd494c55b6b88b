"""Whose fault errors of databases are: by the engines that run here, and by messages of the others' sources and docs."""

from __future__ import annotations

import sqlite3
from collections import Counter

import anyio
import duckdb
import pytest

from tests.traces.make import write_lines
from tests.traces.sharding import same
from trimtab.capture.clean_values import Door
from trimtab.measure.sequences.clean_calls import clean_call
from trimtab.tools.executor import Executor
from trimtab.tools.failures import classify
from trimtab.tools.targets.command import command_tool
from trimtab.tools.targets.mcp_failures import result_failure
from trimtab.tools.tool_definition import tool
from trimtab.traces.core.tool_call import ToolCall
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.errors.database_errors import database_blame, database_fault
from trimtab.traces.errors.sqlstate import POLICY_CLASSES, TOOL_CLASSES, sqlstate_fault

# PostgreSQL 15 and MariaDB 10.11: as their clients printed them. The rest: the engines' error references.
POLICY = {
    "postgresql": [
        'ERROR:  relation "users" does not exist\nLINE 1: select * from users', 'ERROR:  column "timeout" does not exist\nLINE 1: select timeout from t',
        "ERROR:  function foo(integer) does not exist", "ERROR:  operator does not exist: integer + text", 'ERROR:  syntax error at or near "selec"',
        'ERROR:  column "t.a" must appear in the GROUP BY clause or be used in an aggregate function', "ERROR:  aggregate functions are not allowed in WHERE",
        'ERROR:  invalid input syntax for type integer: "abc"', "ERROR:  division by zero", 'ERROR:  duplicate key value violates unique constraint "t_pkey"',
        'ERROR:  new row for relation "t" violates check constraint "t_c_check"', 'ERROR:  column reference "a" is ambiguous', "ERROR:  integer out of range",
        "ERROR:  more than one row returned by a subquery used as an expression", "ERROR:  cannot execute INSERT in a read-only transaction",
        'ERROR:  date/time field value out of range: "2020-13-01"', 'ERROR:  missing FROM-clause entry for table "x"', "ERROR:  permission denied for table t",
        'psycopg2.errors.UndefinedTable: relation "connection_lost" does not exist', "error: x\n  code: '42703',\n  severity: 'ERROR'",
        "(psycopg2.errors.UndefinedColumn) column u.x does not exist\n[SQL: SELECT u.x FROM u WHERE note = 'connection refused' AND statement timeout]",
    ],
    "mysql": [
        "ERROR 1146 (42S02) at line 5: Table 'd.users' doesn't exist", "ERROR 1054 (42S22) at line 6: Unknown column 'x' in 'SELECT'", "ERROR 1111 (HY000): Invalid use of group function",
        "ERROR 1364 (HY000) at line 25: Field 'b' doesn't have a default value", "ERROR 1049 (42000) at line 27: Unknown database 'nosuch'",
        "ERROR 1044 (42000): Access denied for user ''@'localhost' to database 'd'", 'pymysql.err.ProgrammingError: (1146, "Table \'a.b\' doesn\'t exist")',
        'pymysql.err.ProgrammingError: (1064, "You have an error in your SQL syntax; check the manual that corresponds to your MySQL server version")',
        "pymysql.err.OperationalError: (1054, \"Unknown column 'timeout' in 'field list'\")", "mysql.connector.errors.ProgrammingError: 1146 (42S02): Table 'a.b' doesn't exist",
        "MySQLdb.IntegrityError: (1452, 'Cannot add or update a child row: a foreign key constraint fails')",
    ],
    "sql server": [
        "Msg 208, Level 16, State 1, Server s, Line 1\nInvalid object name 'users'.", "Invalid column name 'x'.", "Incorrect syntax near the keyword 'from'.", "Msg 8134, Level 16, State 1",
        "('42S02', \"[42S02] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Invalid object name 'users'. (208) (SQLExecDirectW)\")",
        'The multi-part identifier "t.x" could not be bound.', "Conversion failed when converting the varchar value 'a' to data type int.",
    ],
    "bigquery": [
        "400 Unrecognized name: connection_timeout at [1:8]", "400 Syntax error: Unexpected identifier \"selec\" at [1:1]", "404 Not found: Table p:d.t was not found in location US",
        "400 Function not found: foo at [1:8]", "400 No matching signature for operator = for argument types: INT64, STRING.",
        "400 SELECT list expression references column a which is neither grouped nor aggregated at [1:8]",
    ],
    "snowflake": [
        "000904 (42000): SQL compilation error: error line 1 at position 7\ninvalid identifier 'X'", "002003 (42S02): SQL compilation error:\nObject 'USERS' does not exist or not authorized.",
        "001003 (42000): 01b: SQL compilation error:\nsyntax error line 1 at position 0 unexpected 'SELEC'.", "100038 (22018): Numeric value 'a' is not recognized",
    ],
    "spark": [
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `users` cannot be found. Verify the spelling and correctness of the schema and catalog. SQLSTATE: 42P01",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `x` cannot be resolved. Did you mean one of the following? [`a`]. SQLSTATE: 42703",
        "pyspark.errors.exceptions.captured.ParseException: \n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'.(line 1, pos 0)", "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
        "pyspark.sql.utils.AnalysisException: Table or view not found: users; line 1 pos 14", "cannot resolve 'x' given input columns: [a, b]; line 1 pos 7",
    ],
}  # fmt: skip
TOOL = {
    "sqlite": [
        "sqlite3.OperationalError: database is locked", "database table is locked: t", "database or disk is full", "disk I/O error", "database disk image is malformed",
        "unable to open database file", "Error: SQLITE_BUSY: database is locked", "sqlite3.ProgrammingError: Cannot operate on a closed database.",
    ],
    "postgresql": [
        'psql: error: connection to server on socket "/s/.s.PGSQL.5599" failed: FATAL:  database "nosuch" does not exist', "ERROR:  canceling statement due to statement timeout",
        'connection to server at "127.0.0.1", port 5598 failed: Connection refused\n\tIs the server running', "ERROR:  canceling statement due to lock timeout",
        'ERROR:  could not obtain lock on relation "t"', "FATAL:  terminating connection due to administrator command", "server closed the connection unexpectedly",
        "ERROR:  deadlock detected", "could not extend file \"base/1/2\": No space left on device", "FATAL:  sorry, too many clients already", "ERROR:  out of shared memory",
        "ERROR:  could not serialize access due to concurrent update", "error: x\n  code: '57P01'", "psycopg2.InterfaceError: connection already closed",
    ],
    "mysql": [
        "ERROR 2002 (HY000): Can't connect to local server through socket '/tmp/none' (2)", "ERROR 2013 (HY000) at line 1: Lost connection to server during query",
        "ERROR 1045 (28000): Access denied for user 'nobody'@'localhost' (using password: YES)", "ERROR 1205 (HY000): Lock wait timeout exceeded; try restarting transaction",
        "ERROR 1213 (40001): Deadlock found when trying to get lock; try restarting transaction", "ERROR 1040 (08004): Too many connections", "(2006, 'MySQL server has gone away')",
        "ERROR 1203 (42000): User a already has more than 'max_user_connections' active connections", "ERROR 1114 (HY000): The table 't' is full", "(3024, 'Query execution was interrupted, maximum statement execution time exceeded')",
    ],
    "duckdb": ['IO Error: Could not set lock on file "x.db": Conflicting lock is held in python (PID 7)', "Out of Memory Error: could not allocate block of size 256.0 KiB", "INTERRUPT Error: Interrupted!"],
    "sql server": [
        "Msg 1205, Level 13, State 51, Line 1\nTransaction (Process ID 52) was deadlocked on lock resources with another process", "Lock request time out period exceeded.",
        "Could not allocate space for object 'dbo.t' in database 'd' because the 'PRIMARY' filegroup is full.", "('HYT00', '[HYT00] [Microsoft][ODBC Driver 18 for SQL Server]Login timeout expired (0)')",
        "The transaction log for database 'd' is full due to 'LOG_BACKUP'.", "Login failed for user 'sa'.", "('08S01', '[08S01] [Microsoft][ODBC Driver 18 for SQL Server]TCP Provider: Error code 0x68')",
    ],
    "bigquery": ["503 backendError", "403 Quota exceeded: Your project exceeded quota for concurrent queries. rateLimitExceeded", "tableUnavailable: try again"],
    "snowflake": [
        "390114 (08001): Authentication token has expired. The user must authenticate again.", "000630 (57014): Statement reached its statement or warehouse timeout of 10 second(s) and was canceled.",
        "000606 (57P03): No active warehouse selected in the current session.",
    ],
    "spark": ["ExecutorLostFailure (executor 3 exited caused by one of the running tasks)", "java.lang.OutOfMemoryError: Java heap space", "Cannot call methods on a stopped SparkContext: SparkContext was shut down"],
}  # fmt: skip
OTHERS = ["KeyError: 'table'", "boom", "IndexError: list index out of range", "no flight on that date", "Error: seat 12A is taken", "value 7 is wrong"]  # fmt: skip


@pytest.mark.parametrize(("messages", "fault"), [(POLICY, "policy"), (TOOL, "tool")])
def test_messages_of_engines(tmp_path, messages, fault):
    texts = [text for some in messages.values() for text in some]
    assert {text: database_fault(text) for text in texts} == dict.fromkeys(texts, fault)
    assert {text: fault_of(text) for text in texts} == dict.fromkeys(texts, fault)
    rows = []
    for i, text in enumerate(texts):
        call = {"episode_id": f"e{i}", "step": 0, "type": "tool_call", "tool": "sql", "args": {"i": i}}
        rows += [call, {**call, "step": 1, "type": "tool_result", "error": text}]
    assert same(write_lines(tmp_path / "log.jsonl", rows)).tools["sql"].faults == {fault: len(texts)}


def test_other_errors_are_no_database_s():
    assert {text: database_fault(text) for text in OTHERS} == dict.fromkeys(OTHERS, None)


def test_a_server_s_status_counts_before_the_statement_that_it_names():
    assert fault_of("HTTP 500: sqlite3.OperationalError: no such table: users") == "tool"


WRONG = [
    "select * from timeout", "select connection_reset from t", "selec 1", "select 1 from", "select foo(1)", "insert into t values (1)", "insert into t(zz) values (1)",
    "insert into t(a) values (1)", "create table t(a int)", "drop table zz", "select a from t x, t y", "select sum(count(a)) from t", "select 'abc", "insert into t values (5, 'x', 9, 9)",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_wrong_statements_of_running_engines(engine):
    database = sqlite3.connect(":memory:") if engine == "sqlite" else duckdb.connect()
    database.execute("create table t(a integer primary key, b text not null, timeout integer)")
    blames = Counter()
    for statement in WRONG:
        with pytest.raises((sqlite3.Error, duckdb.Error)) as caught:
            database.execute(statement).fetchall()
        failure = classify(caught.value)
        assert fault_of(str(failure)) == failure.blame == "policy", str(failure)
        blames[failure.kind] += 1
    assert blames == {"refused": len(WRONG)}
    database.close()


def test_a_locked_database_is_the_infrastructure_s_and_may_be_asked_again(tmp_path):
    one, other = (sqlite3.connect(tmp_path / "x.db", timeout=0, isolation_level=None) for _ in range(2))
    one.execute("begin exclusive")
    with pytest.raises(sqlite3.OperationalError) as caught:
        other.execute("create table t(a)")
    failure = classify(caught.value)
    assert (failure.blame, failure.kind, failure.transient) == ("infrastructure", "unavailable", True)
    assert database_blame("ERROR:  canceling statement due to statement timeout") == "tool"
    one.close(), other.close()


def test_a_recorded_call_without_blame_takes_that_of_its_words():
    texts = ["no such table: users", "database is locked", "boom", ""]
    calls = [clean_call(ToolCall("sql", error=text), Door()) for text in texts]
    assert [call.blame for call in calls] == ["policy", "infrastructure", "", ""]
    assert clean_call(ToolCall("sql", error=texts[0], blame="tool"), Door()).blame == "tool"


def test_sqlstate_classes():
    assert not POLICY_CLASSES & TOOL_CLASSES
    for classes, fault in ((POLICY_CLASSES, "policy"), (TOOL_CLASSES, "tool"), ({"02", "HY", "P0"}, None)):
        for first in classes:
            codes = {f"SQLSTATE[{first}000]", f"x SQLSTATE: {first}000", f"ERROR 7777 ({first}000): x", f"('{first}000', '[{first}000] [M][D] x')"}  # fmt: skip
            assert {sqlstate_fault(code) for code in codes} == {fault}, first
    assert [sqlstate_fault(f"SQLSTATE {code}") for code in ("25006", "40002", "55P03", "HYT00", "25P02")] == ["policy", "policy", "tool", "tool", None]  # fmt: skip


def test_the_executor_a_server_and_a_command_blame_alike(tmp_path):
    """The record of a live call has the blame that the same text has in a log."""
    path = tmp_path / "x.db"
    sqlite3.connect(path).close()

    def query(sql: str) -> str:
        return str(sqlite3.connect(path, timeout=0).execute(sql).fetchall())

    words = ["sh", "-c", "echo 'Error: in prepare, no such table: users' >&2; exit 1"]
    tools = [tool(query, name="sql"), command_tool("shell", words, {"type": "object"})]

    async def main() -> list[ToolCall]:
        async with Executor(tools) as executor:
            calls = [("sql", {"sql": "select * from users"}), ("sql", {"sql": "select 1"}), ("shell", {})]
            return [(await executor.call(*one)).call for one in calls]

    calls = anyio.run(main)
    assert [(one.blame, one.kind) for one in calls] == [
        ("policy", "refused"),
        ("", ""),
        ("policy", "refused"),
    ]
    assert fault_of(calls[0].error) == fault_of(calls[2].error) == "policy"
    served = {
        text: result_failure(f"Error executing tool sql: {text}")
        for text in ("no such table: users", "database is locked", "boom")
    }
    assert [(one.blame, one.kind) for one in served.values()] == [
        ("policy", "refused"),
        ("infrastructure", "unavailable"),
        ("tool", "error"),
    ]
