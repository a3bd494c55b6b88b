"""Whose fault errors are, by texts of many tools, through the readers and the table; and the status that a JSON result names."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.traces.make import chat, write_lines
from tests.traces.sharding import same
from trimtab.traces.errors.attribution import fault_of
from trimtab.traces.read import read_episodes
from trimtab.traces.table.episode_facts import facts_of

TOOL = [
    "HTTP 500 Internal Server Error", "HTTP 429", "HTTP/1.1 503", "HTTP 408 Request Timeout", "HTTP 507 Insufficient Storage", "HTTP 520", "HTTP 505", "HTTP 599", "503",
    "status 529 overloaded", "Error code: 529 - {'type':'error'}", "Error 503", "Error (500)", "API error 429: slow down", "server returned 521", "status code: 502",
    "520 Web server returned an unknown error", "503 Service Unavailable", "Internal error", "ReadTimeout", "upstream request timeout", "Request timed out.", "Timeout",
    "requests.exceptions.ReadTimeout: 5 s", "asyncio.TimeoutError", "context deadline exceeded", "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
    "Error: too many requests", "HTTP 403 rate limited", "RateLimitError: slow", "ECONNREFUSED 127.0.0.1:80", "read ECONNRESET", "connect ETIMEDOUT 10.0.0.1:443",
    "getaddrinfo EAI_AGAIN api.x.org", "Connection refused", "Connection error.", "requests.exceptions.ConnectionError: x", "connection to server at 1.2.3.4 failed",
    "Error: lost connection", "Temporary failure in name resolution", "DNS lookup failed", "service temporarily unavailable", '{"error": "HTTP 503"}',
    '{"code": 503, "message": "overcapacity"}', '{"type":"overloaded_error","message":"x"}', '{"status": 500}', "Error: Connection reset by peer", "Tool call timed out after 5 s",
    "HTTP 500 Internal Server Error: KeyError: 'user_id'", "500 Server Error: AttributeError: 'x'", "Internal Server Error: TypeError: a", "Error: HTTP 500: KeyError: 'user_id'",
    "MCP error -32603: Internal error: KeyError: 'x'", "Tool server returned 500: IndexError: list index out of range", "Error: status code 500, body: TypeError: x",
    "Error: TypeError: fetch failed: ETIMEDOUT", "ImportError: Connection refused", "LookupError: HTTP 503", "HTTP 500: AssertionError", "DEADLINE_EXCEEDED",
    "KeyError: 'a'\nDuring handling of the above exception, another exception occurred:\nrequests.exceptions.ReadTimeout: Read", "grpc: DEADLINE_EXCEEDED",
    "The service is currently unavailable", "rpc error: code = Unavailable desc = x", "Error: unavailable", "no connection to the backend",
    "docker: Cannot connect to the Docker daemon", "Query timeout exceeded",
]  # fmt: skip
NOT_TOOL = [
    "Error: limit must be at most 500", "ValueError: invalid connection string argument 'db'", "Error: amount 504 exceeds your balance of 20", "Error: order #500 not found",
    "invalid argument: timeout must be an integer", "Error: room 429 does not exist", "KeyError: 'temporary_password'", "Error: file not found: connection.py",
    "Error: unknown column 'dns'", "Invalid arguments: port 502 not allowed", "TypeError: connect() got an unexpected keyword argument 'timeout'", "KeyError: 'timeout'",
    "SyntaxError: invalid syntax (solution.py, line 500)", "NameError: name 'timeout_s' is not defined", "AssertionError: expected 500 got 3", "Error on line 500",
    "FileNotFoundError: [Errno 2] No such file or directory: 'temporary.txt'", "sqlite3.OperationalError: no such column: connection_id", "HTTP 404 Not Found",
    "Error: promo code 500 does not exist", "Error: unexpected keyword argument timeout", "Error: timeout=500 is too large", "Error: zip code 503 is invalid",
    "Error: unknown field `connection`", "Error: invalid value for timeout_s: 503", "Error: no row 500.5", "Traceback (most recent call last):\n  x\nNameError: name timeout",
    "invalid timeout: must be positive", "Invalid value for timeout: -1", "Unknown parameter: timeout", "timeout: value is not a valid integer", "invalid timeout",
    "Seat 12A is unavailable", "Error: the requested date is unavailable", "Error: no connection between A and B found", "bash: line 1: timeout: command not found",
    "AssertionError: expected status 500, got 200", "TypeError: a timeout is no number", "NameError: no connection string",
    "Error: the connection type is invalid", "401 Unauthorized",
]  # fmt: skip


def _steps(path, errors):
    rows = []
    for i, text in enumerate(errors):
        call = {"episode_id": f"e{i}", "step": 0, "type": "tool_call", "tool": "a", "args": {"i": i}}
        rows += [call, {"episode_id": f"e{i}", "step": 1, "type": "tool_result", "tool": "a", "error": text}]
    return write_lines(path, rows)


@pytest.mark.parametrize(("errors", "tools"), [(TOOL, True), (NOT_TOOL, False)])
def test_faults_by_words(tmp_path, errors, tools):
    assert {text: fault_of(text) == "tool" for text in errors} == dict.fromkeys(errors, tools)
    faults = same(_steps(tmp_path / "log.jsonl", errors)).tools["a"].faults
    assert faults["tool"] == (len(errors) if tools else 0)


def test_what_an_error_of_the_program_quotes_or_names_is_not_what_befell_the_tool():
    assert Counter(map(fault_of, ("KeyError: 'timeout'", "TypeError: 'timeout'", "x.NameError: a 'connection-reset'"))) == {"unknown": 3}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "error", "kind", "fault"),
    [
        ({"status": 503, "message": "backend down"}, "status 503: backend down", "status 503: backend down", "tool"),
        ({"status_code": 500, "detail": "boom"}, "status 500: boom", "status 500: boom", "tool"),
        ({"error": "boom", "status": 500}, "status 500: boom", "status 500: boom", "tool"),
        ({"status": "error", "code": 502, "message": "bad 7"}, "status 502: bad 7", "status 502: bad #", "tool"),
        ({"error": {"message": "late"}, "status": 504}, "status 504: late", "status 504: late", "tool"),
        ({"error": "no row", "status": 404}, "status 404: no row", "status 404: no row", "policy"),
        ({"error": "HTTP 503"}, "HTTP 503", "HTTP 503", "tool"),
        ({"error": "HTTP 503", "status": 503}, "HTTP 503", "HTTP 503", "tool"),
        ({"status": 503}, "status 503", "status 503", "tool"),
        ({"success": False, "message": "order #500 is gone", "code": 7}, "order #500 is gone", "order # is gone", "unknown"),
    ],
)  # fmt: skip
def test_a_json_result_keeps_its_status(tmp_path, result, error, kind, fault):
    path = write_lines(tmp_path / "log.jsonl", [{"id": "a", "messages": chat(result=json.dumps(result))}])
    (episode,), _ = read_episodes([path])
    (call,) = facts_of(episode).calls
    assert (call.error, call.kind, call.fault) == (error, kind, fault)
