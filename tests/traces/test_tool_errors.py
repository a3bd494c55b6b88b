"""Which results report an error: real ones of many tools, and texts that only speak of errors."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.test_trace_diagnosis import run
from tests.traces.make import chat, write_lines
from tests.traces.sharding import same
from trimtab.errors import TraceError
from trimtab.traces.errors.detect import error_text
from trimtab.traces.errors.kinds import error_kind_of
from trimtab.traces.errors.patterns import _STARTS, ERROR_START, starts_as_error

FAILED = [
    "HTTP 503 Service Unavailable", "503 Service Unavailable", "HTTP/1.1 404 Not Found", "Tool execution failed: timeout",
    "bash: foo: command not found", "bash: line 1: foo: command not found", "zsh: command not found: x", "/bin/sh: 1: foo: not found",
    "Failed to fetch url", "[ERROR] bad", "ERROR: x", "❌ Error: x", "**Error**: x", "ERROR - bad", "<error>bad</error>", "Error", "Error.",
    "error\n", "Error (500)", "Error 404", "Error code: 400", "Error executing tool x", "Exception: x", "API Error: rate limit",
    "Command exited with code 1", "command exited with status 127", "Exit code: 1\nout", "fatal: not a git repository",
    "requests.exceptions.ConnectionError: x", "permission denied", "\n\nError: boom", "No replacement was performed, old_str `a`",
    "Request timed out.", "Timeout", "cat: x: No such file or directory", "ls: cannot access q", "Connection refused",
    "Internal Server Error", "Unknown tool foo", "Tool foo not found", "Error: no seats", "Error: not found", "Error: None of the rows fits",
    "Error: null pointer", "Error: nullable", "Error: false start", "Error: far off", "Error: n", "Error: n/a here", "Error: num", "Error: nonsense", "Error: nobody",
    "Error: falsified", "Error: fall", "Error: nul", "Error: 0x80070005", "Error: 404", "Error:", "Error:\n boom", "Error 0x1F", "Error code 7", "Error code: E7",
    "Error message: gone", "Error code: -32602", "Error message 'gone'", "failed: 3, passed: 7", "Failed: no such row", "Failed : x",
]  # fmt: skip
BRANCHES = [
    "Traceback (most recent call last)", "too many requests", "429 too many requests", "409 conflict", "401 unauthorized", "403 forbidden", "400 bad request",
    "504 gateway timeout", "tool x does not exist", "return code: 1", "panic: x", "access denied", "segmentation fault", "rate limit exceeded",
    "read timeout after 5 s", "connection reset", "your proposed edit has introduced new syntax error(s)", "sh: command not found", "x.y.Exception: z",
    "failed: x", "invalid function", "returned with status 3", "validation error: x", "service temporarily unavailable",
    "{'error': 'no row'}", "{'error': \"it's gone\"}",
    'Catalog Error: Table with name x does not exist!', "Binder Error: x", "Parser Error: syntax error", "Conversion Error: x", "Constraint Error: x", "IO Error: No files",
    "Out of Memory Error: x", "no such table: users", "ambiguous column name: a", 'unrecognized token: "@"', 'near "selec": syntax error', "UNIQUE constraint failed: t.a",
    "database is locked", 'relation "users" does not exist\nLINE 1: select', 'syntax error at or near "selec"', "Msg 208, Level 16, State 1, Line 1",
    "An error occurred while running the tool. Please try again. Error: no seats", "An unexpected error has occurred.", "An error occurred: x",
    "An error occurred. Please try again.", "MCP error -32602: Invalid arguments for tool search: []", "MCP error: gone", "JSON-RPC error -32601: no method",
    "Input validation error: 'q' is a required property", "Output validation error: x", "Tool execution timed out", "Tool call timed out after 5 s", "query timed out",
    "Invalid arguments: q is required", "Invalid argument: 'q'", "Invalid parameters for tool search: notes", "Invalid JSON: expected a value", "Invalid request: node 7",
    "<tool_use_error>File has not been read yet", "Unable to connect to host", "Unable to connect to api.x.org:443", "Could not connect to the server: refused",
    "Cannot connect to http://x.org/a. Try again", "Could not resolve host: x.org", "File not found: a.txt", "File not found: notes.txt", "File not found: 2024.csv",
    "Tool web is not available", "No tool named 'web' found", "There is no function called web", "Tool 'web' not recognized", "Path not found", "Resource not found.\n", "Directory not found\r\nx", "API error 429: slow down",
]  # fmt: skip
FINE = [
    "error-free operation confirmed", "Error handling guide: how to write", "Exception handling in Python", "Error rate: 0%", "Errors: 0",
    "No such tables were needed", "near the station", "Unique constraints: none", "Column B does not exist in every sheet", "Relation to the host", "IO errors: 0", "Database is locked in the safe",
    "Messages: 3", "Msg from Ann", "Out of range: none", "Schema of the table", "Catalog of books", "Check constraint", "Constraint error analysis",
    "No results found. Error rate is low", "ok", "error.log\nx", "error_count,3", "error,count\n1,2", "timeout: 30", "HTTP 200 OK",
    "Exit code: 0", "Command exited with code 0", "Failed tests: none", "fatalities: 3", "Bash is a shell: see", "503 rooms", "No error: fine",
    "Error bars show one SE", "", "Connection established", "Tool box found", "No tools named here", "No function is named so",
    "{'error': None, 'rows': 3}", "{'errors': 'none'}", "{'rows': 3, 'error': 'x'}",
    "An error occurred in 3 of 40 rows, see table", "An error occurred (3 times)", "An error budget is", "An exception to the rule: fees", "An error occurs while running",
    "MCP errors: 0", "MCP is a protocol: see", "Input validation errors: none", "Input validation: passed", "Output: 3", "Tool execution time: 3 s", "Tool execution timeout: 30",
    "Invalid arguments: 0", "Invalid arguments: none", "Invalid requests: 12", "Invalid input: no rows", "Invalid inputs and how to mend them",
    "tool_use_errors: 0", "Unable to connect? Five things to try", "Unable to connect to the server? Ask us", "Cannot connect to people, he said", "Could not resolve to stay",
    "File not found errors are common", "File not found: 0", "File not found: none", "File not found: 3 of 40", "Files not found: 3", "Path nothing: a", "API error 3 (of 40)",
    "failed: 0, passed: 10", "Failed: none", "Error: 0", "error: 0 warnings: 0", "Error: none", "Error: None.", "error : none\nwarnings: 2", "ERROR: null", "Error: false, all well",
    "Exception: none", "last_error: null", "parse_error: 0", "Validation error: none", "Error: 0 (of 40)", "[error: none]", "Error 0", "Error code: 0", "Error code 0",
    "Error message: none", "Error message decoding guide", "Error messages", "Error code of conduct", "{'error': 'none'}", "{'error': '0'}", "Error:   none", "Error:\tnone\t",
]  # fmt: skip
OBJECTS = [
    ({"success": False, "message": "no seats"}, "no seats"), ({"ok": False}, "no success"), ({"error_message": "x"}, "x"),
    ({"isError": True, "content": "x"}, "x"), ({"exit_code": 2, "stdout": ""}, "exit code 2"), ({"status": 404}, "status 404"),
    ({"success": True}, ""), ({"error": None}, ""), ({"error": False, "ok": True}, ""), ({"exit_code": 0}, ""), ({"status": "ok"}, ""),
    ({"errors": 0}, ""), ({"error": "none"}, ""), ({"error": " None "}, ""), ({"error": "0", "ok": True}, ""), ({"error_message": "null"}, ""), ({"error": "[]"}, ""),
    ({"error": "none of these"}, "none of these"), ({"error": "none", "success": False, "message": "late"}, "late"),
]  # fmt: skip


@pytest.mark.parametrize("text", FAILED + BRANCHES)
def test_results_that_report_an_error(text):
    assert error_text(text) == text


@pytest.mark.parametrize("text", FINE)
def test_results_that_only_speak_of_errors(text):
    assert error_text(text) == ""


@pytest.mark.parametrize(("value", "error"), OBJECTS)
def test_objects_that_report_an_error(value, error):
    assert error_text(json.dumps(value)) == error


def test_steps_report_errors_by_the_same_texts(tmp_path):
    rows = []
    for i, text in enumerate(FAILED + FINE):
        call = {"episode_id": f"e{i}", "step": 0, "type": "tool_call", "tool": "a", "args": {"i": i}}
        rows += [call, {"episode_id": f"e{i}", "step": 1, "type": "tool_result", "tool": "a", "result": text}]
    table = same(write_lines(tmp_path / "steps.jsonl", rows))
    assert (table.tools["a"].failed, table.error_flags_in_log) == (len(FAILED), False)
    rows[-1]["error"] = "down"
    table = same(write_lines(tmp_path / "said.jsonl", rows))
    assert (table.tools["a"].failed, table.error_flags_in_log) == (len(FAILED) + 1, True)


def test_every_branch_of_the_pattern_is_met():
    """By some text here; the branch alone, so that none is dead behind another."""
    lead = ERROR_START.partition("((")[0]
    for branch in _STARTS:
        one = re.compile(f"{lead}({branch})", re.I | re.A)
        assert any(one.match(text) for text in [*FAILED, *BRANCHES]), branch


def test_the_kind_leaves_the_label_out():
    assert error_kind_of("[ERROR] bad thing") == error_kind_of("<error>bad thing") == "bad thing"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "rate limit exceeded", "code": 429}, "rate limit exceeded"),
        ({"error": {"message": "rate limit exceeded", "code": 429}}, "rate limit exceeded"),
        ({"code": 404, "message": "no row 7 in 'a'"}, "no row # in #"),
        ({"code": 500}, "code 500"), ({"code": "500"}, "code 500"), ({"status": 404, "path": "a b"}, "status 404"),
        ({"error": {"code": -32602, "data": None}}, "code -32602"), ({"error": "it is gone", "code": 1}, "it is gone"),
        ({"detail": "not here", "type": "gone"}, "not here"), ({"detail": [{"loc": ["q"], "msg": "field required"}]}, "field required"),
        ({"errors": [{"message": "no such row"}]}, "no such row"), ({"reason": "full"}, "full"), ({"type": "invalid_request", "param": None}, "invalid_request"),
        ({"message": "", "reason": "late"}, "late"), ({"rows 7": [1, 2], "q": "x"}, "{rows #, q}"), ({"message": "Error: no seats"}, "no seats"),
        ({"message": "down", "type": "pkg.ServerError"}, "pkg.ServerError"), ({"trace": "x" * 50, "message": "a, \"b\"\nc"}, "a, #"),
    ],
)  # fmt: skip
def test_the_kind_of_an_object_is_what_it_says_with_blanks_and_without(error, kind):
    spaced, tight = json.dumps(error), json.dumps(error, separators=(",", ":"))
    assert [error_kind_of(text) for text in (spaced, tight, f"Error: {tight}")] == [kind] * 3
    if kind[0] != "{":  # the columns keep 400 characters
        long = json.dumps({**error, "rest": "y" * 500}, separators=(",", ":"))[:400]
        assert error_kind_of(long) == kind


def test_steps_name_the_kinds_of_objects_alike(tmp_path):
    errors = [{"message": "rate limit exceeded", "code": 429}, {"code": 500, "stack": "s" * 600}, {"q": 1}, '{"error": {"message": "late"}}']  # fmt: skip
    rows = []
    for i, error in enumerate(errors):
        call = {"episode_id": f"e{i}", "step": 0, "type": "tool_call", "tool": "a", "args": {"i": i}}
        rows += [call, {"episode_id": f"e{i}", "step": 1, "type": "tool_result", "tool": "a", "error": error}]
    table = same(write_lines(tmp_path / "steps.jsonl", rows))
    assert set(table.tools["a"].kinds.shown(16, "(other)")) == {
        "rate limit exceeded",
        "code 500",
        "{q}",
        "late",
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("<error>bad thing</error>", "bad thing"), ("Error! something", "something"), ("Error. Gone", "Gone"), ("ERROR - bad", "bad"),
        ("<tool_use_error>File was not read</tool_use_error>\n", "File was not read"), ("see <b>this</b>\nError", "see <b>this</b>"), ("{not json", "{not json"),
        ("An error occurred while running the tool. Please try again. Error: no seats", "no seats"),
    ],
)  # fmt: skip
def test_the_kind_leaves_marks_and_tags_out(error, kind):
    assert error_kind_of(error) == kind


def _log(tmp_path):
    rows = [
        {"id": str(i), "task_id": str(i // 4), "reward": i % 2, "messages": chat(result="no such luck" if i % 2 else f"row {i}")}
        for i in range(40)
    ]  # fmt: skip
    return write_lines(tmp_path / "log.jsonl", rows)


def test_a_pattern_of_the_users_own_and_by_text_beside_the_share(tmp_path):
    path = _log(tmp_path)
    found = json.loads(run("diagnose", path, "--json")[1])
    assert (found["failures_told_by"], found["tools"][0]["failed"]) == ("text", 0)
    text = run("diagnose", path, "--verbose")[1]
    assert "failed by text" in text
    assert "0 of 40 calls, by text" in text
    code, text = run("diagnose", path, "--error-pattern", r"\bsuch LUCK", "--html", tmp_path / "o.html")
    assert code == 1
    assert "20 of 40 calls" in text
    assert "20 calls that failed by --error-pattern" in text
    assert "Failed, by text" in (tmp_path / "o.html").read_text()
    with pytest.raises(TraceError, match=r"'\(' is not a regular expression"):
        run("diagnose", path, "--error-pattern", "(")


def test_a_field_of_the_log_is_no_guess(tmp_path):
    rows = [
        {"id": str(i), "messages": [*chat()[:2], {**chat()[2], "is_error": i == 0}, chat()[3]]}
        for i in range(20)
    ]
    found = json.loads(run("diagnose", write_lines(tmp_path / "log.jsonl", rows), "--json")[1])
    assert found["failures_told_by"] == "the log"
    assert "by text" not in run("diagnose", tmp_path / "log.jsonl")[1]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.from_regex(re.compile(ERROR_START, re.I | re.A)), st.text(max_size=3))
def test_the_quick_look_at_the_first_word_loses_no_error(text, before):
    """The pattern itself decides; what it takes, the look lets through."""
    whole = re.compile(ERROR_START, re.I | re.A)
    for one in (text, text.upper(), before + text):
        assert starts_as_error(one) == (whole.match(one) is not None), one


@pytest.mark.parametrize("branch", _STARTS)
def test_the_quick_look_lets_every_branch_through(branch):
    whole, lead = re.compile(ERROR_START, re.I | re.A), ERROR_START.partition("((")[0]

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.from_regex(re.compile(f"{lead}({branch})", re.A)))
    def check(text):
        assert starts_as_error(text) == (whole.match(text) is not None), text

    check()
