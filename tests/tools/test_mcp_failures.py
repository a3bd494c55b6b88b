"""Blame of failed MCP calls, and dead, loud and foreign servers: texts of the SDKs' sources, and real servers of the SDK in processes."""

from __future__ import annotations

import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from tests.support import cli, running
from tests.tools.servers import http_server, mcp_script, wait_until
from trimtab.tools import Executor
from trimtab.tools.stress.load_ramp import RAW
from trimtab.tools.targets import McpServer
from trimtab.tools.targets.mcp_failures import (
    BAD_PARAMS,
    CLOSED,
    INTERNAL,
    NO_METHOD,
    code_failure,
    result_failure,
)

QUICK = ("--seconds", "0.15", "--max-concurrency", "2")
SERVER = '''
import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("test")
calls = []


@server.tool()
def work(number: int) -> str:
    """Works until its end."""
    calls.append(number)
    if len(calls) > LIMIT:
        open(MARK, "w").close()
        os._exit(3)
    return "done"


if os.path.exists(MARK):
    sys.exit("the licence ran out")
print(GREETING, end="", flush=True)
server.run(**({"transport": "streamable-http", "port": int(sys.argv[1])} if len(sys.argv) > 1 else {}))
'''


def script(folder: Path, limit: int = 10**9, greeting: str = "") -> list[str]:
    """A server that ends itself at a call, cannot start again then, and may greet on standard output."""
    head = f"LIMIT, MARK, GREETING = {limit}, {str(folder / 'dead')!r}, {greeting!r}\n"
    path = folder / "server.py"
    path.write_text(head + SERVER, encoding="utf-8")
    return [sys.executable, str(path)]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


PYDANTIC = "Error executing tool get_current_time: 1 validation error for get_current_timeArguments\ntimezone\n  Field required"


@pytest.mark.parametrize(
    ("text", "blame", "kind"),
    [
        ("MCP error -32602: Tool nope not found", "policy", "unknown_tool"),
        ("MCP error -32602: Input validation error: Invalid arguments for tool echo: expected string", "policy", "bad_arguments"),
        ("MCP error -32602: MCP error -32602: Input validation error: x", "policy", "bad_arguments"),
        ("MCP error -32602: Output validation error: Tool echo has an output schema but", "tool", "bad_result"),
        ("MCP error -32000: Connection closed", "infrastructure", "connection"),
        ("MCP error -32001: Request timed out", "tool", "timeout"),
        ("MCP error -32603: boom", "tool", "error"),
        ("Unknown tool: nope", "policy", "unknown_tool"),
        ("Input validation error: 'message' is a required property", "policy", "bad_arguments"),
        ("Output validation error: outputSchema defined but no structured output returned", "tool", "bad_result"),
        (PYDANTIC, "policy", "bad_arguments"),
        # a model of the tool's own: what it fetched was malformed
        ("Error executing tool weather: 1 validation error for Forecast\ntemperature\n  Field required", "tool", "error"),
        ("Error executing tool convert_time: Invalid timezone: 'No time zone found with key Berlin'", "tool", "error"),
        ("the log says: MCP error -32602: Tool nope not found", "tool", "error"),
        ("", "tool", "error"),
    ],
)  # fmt: skip
def test_blame_of_a_result(text: str, blame: str, kind: str) -> None:
    failure = result_failure(text)
    assert (failure.blame, failure.kind) == (blame, kind)


@pytest.mark.parametrize(
    ("code", "message", "blame", "kind"),
    [
        (BAD_PARAMS, "Unknown tool: nope", "policy", "unknown_tool"),
        (BAD_PARAMS, "no such cursor", "policy", "refused"),
        (NO_METHOD, "Method not found", "policy", "refused"),
        (CLOSED, "Connection closed", "infrastructure", "connection"),
        (INTERNAL, "boom", "tool", "error"),
        (-32042, "approve this URL", "tool", "error"),
    ],
)
def test_blame_of_an_error_of_the_protocol(code: int, message: str, blame: str, kind: str) -> None:
    failure = code_failure(code, message)
    assert (failure.blame, failure.kind) == (blame, kind)


@pytest.mark.parametrize("http", [False, True], ids=["stdio", "streamable-http"])
def test_the_sdks_own_server_refuses_what_the_policy_got_wrong(tmp_path: Path, http: bool) -> None:
    """The tools are asked without our own check of names and arguments, so that the server's answer is what is judged."""
    command, port = mcp_script(tmp_path), free_port()

    async def main(server: Any) -> list[tuple[str, str]]:
        async with Executor(sources=[McpServer(server, options={"schema": None})]) as executor:
            known = executor.tools[0]
            known_call = known.run.func  # type: ignore[attr-defined]
            results = []
            for name, arguments in (("double", {"number": "x"}), ("double", {}), ("nope", {}), ("fail", {})):
                try:
                    await known_call(name, arguments)
                except Exception as error:  # a ToolFailure, compared below
                    results.append((error.blame, error.kind))  # type: ignore[attr-defined]
            return results

    expected = [("policy", "bad_arguments")] * 2 + [("policy", "unknown_tool"), ("tool", "error")]
    if not http:
        assert anyio.run(main, command) == expected
        return
    with running([*command, str(port)], limit=60) as child:
        wait_until(lambda: child.poll() is not None or _listens(port), limit=60)
        assert anyio.run(main, f"http://127.0.0.1:{port}/mcp") == expected


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def one_line(done: Any, *parts: str) -> None:
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert done.stderr.startswith("trimtab: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def shell(command: list[str]) -> str:
    return " ".join(command)


def test_a_server_that_dies_for_good_under_the_test_is_one_line(tmp_path: Path) -> None:
    done = cli("stress", "tools", shell(script(tmp_path, limit=3)), *QUICK)
    one_line(done, "the target died under the test, after ", "connection")


def test_calls_in_line_share_one_failed_start(tmp_path: Path) -> None:
    """Fifty calls at a time to a server that is gone start it once, or twice, not fifty times."""
    starts = tmp_path / "starts"
    command = script(tmp_path, limit=1)
    path = tmp_path / "server.py"
    path.write_text(
        f"open({str(starts)!r}, 'a').write('x')\n" + path.read_text(encoding="utf-8"), encoding="utf-8"
    )

    async def main() -> set[str]:
        async with Executor(
            sources=[McpServer(command, options={"adaptive": False})], options=RAW
        ) as executor:
            kinds = set()

            async def one() -> None:
                kinds.add((await executor.call("work", {"number": 1})).call.kind)

            for _ in range(2):  # the second one ends the server
                await executor.call("work", {"number": 1})
            async with anyio.create_task_group() as group:
                for _ in range(50):
                    group.start_soon(one)
            return kinds

    assert anyio.run(main) == {"connection"}
    assert 2 <= len(starts.read_text(encoding="utf-8")) <= 3


def test_an_error_inside_an_executor_is_not_wrapped_in_a_group(tmp_path: Path) -> None:
    one_line(
        cli("stress", "tools", shell(mcp_script(tmp_path)), "--tool", "nope"),
        "the target has no tool nope; it has double",
    )


def test_a_server_over_http_that_dies_under_the_test_is_one_line(tmp_path: Path) -> None:
    port = free_port()
    with running([*script(tmp_path, limit=3), str(port)], limit=60) as child:
        wait_until(lambda: child.poll() is not None or _listens(port), limit=60)
        one_line(
            cli("stress", "tools", f"http://127.0.0.1:{port}/mcp", *QUICK), "the target died under the test"
        )


def test_a_server_that_prints_and_says_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    path.write_text("print('Welcome')\nprint('listening')\n", encoding="utf-8")
    one_line(
        cli("stress", "tools", shell([sys.executable, str(path)]), *QUICK),
        "'Welcome' and 1 more line",
        "only JSON-RPC",
    )


def test_a_server_that_greets_and_then_works(tmp_path: Path) -> None:
    done = cli("stress", "tools", shell(script(tmp_path, greeting="Hello\n")), *QUICK, "--json")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "wrote 'Hello' to standard output" in line


def test_an_http_server_that_does_not_speak_mcp() -> None:
    with http_server(lambda _: (404, {}, b"no such page")) as url:
        one_line(
            cli("stress", "tools", url.replace("/tool", "/mcp"), *QUICK), "is this the URL of an MCP server?"
        )


def test_a_closed_port() -> None:
    for path in ("", "/mcp"):
        one_line(
            cli("stress", "tools", f"http://127.0.0.1:{free_port()}{path}", *QUICK),
            "connection attempts failed",
        )


def test_calls_longer_than_a_level_are_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_tools.py").write_text(
        "import time\ndef slow() -> str:\n    time.sleep(0.25)\n    return 'x'\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    one_line(
        cli("stress", "tools", "slow_tools:slow", *QUICK),
        "no call was answered within its level of 0.15 s",
        "--seconds",
    )


class _Page(BaseHTTPRequestHandler):
    """A web page for every request, as a wrong port gives."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


def test_a_web_page_is_not_an_mcp_server() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        one_line(
            cli("stress", "tools", f"http://127.0.0.1:{server.server_address[1]}/mcp", *QUICK), "MCP server"
        )
    finally:
        server.shutdown()
        server.server_close()
