"""Tools behind HTTP, MCP, commands and the sandbox: real servers and processes, their failures and whose they are."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support import running
from tests.tools.servers import http_server, mcp_script, wait_until
from trimtab.errors import ToolError
from trimtab.tools import Executor, ExecutorOptions, RetryOptions
from trimtab.tools.executor import Source
from trimtab.tools.targets import (
    HttpService,
    McpServer,
    SandboxLimits,
    command_tool,
    resolve_target,
    sandbox_tool,
)

ONCE = ExecutorOptions(retry=RetryOptions(attempts=1))
FAST = ExecutorOptions(retry=RetryOptions(attempts=3, initial_s=0.001, jitter_s=0.001))
NUMBER = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}


def calls(
    tools: list[Any],
    sources: list[Source],
    *wanted: tuple[str, dict[str, Any]],
    options: ExecutorOptions = ONCE,
) -> list[Any]:
    async def main() -> list[Any]:
        async with Executor(tools, sources=sources, options=options) as executor:
            return [await executor.call(name, arguments) for name, arguments in wanted]

    return anyio.run(main)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_http_answers_and_failures() -> None:
    replies: dict[int, Any] = {
        0: (200, {}, b'{"price": 3}'),
        1: (200, {"content-type": "text/plain"}, b"three"),
        2: (404, {}, b"no such item"),
        3: (401, {}, b"key"),
        4: (500, {}, b"oops"),
        5: (429, {"retry-after": "7"}, b""),
        6: None,
        7: (200, {}, b'{"price": '),
        8: (200, {}, b'"' + b"x" * 5000 + b'"'),
    }
    with http_server(lambda body: replies[body["n"]]) as url:
        service = HttpService(url, name="price", max_bytes=2000)
        results = calls([], [service], *(("price", {"n": n}) for n in replies))
    assert [one.value for one in results[:2]] == [{"price": 3}, "three"]
    assert [(one.call.blame, one.call.kind) for one in results[2:]] == [
        ("policy", "refused"), ("infrastructure", "denied"), ("infrastructure", "server_error"),
        ("infrastructure", "rate_limited"), ("infrastructure", "connection"), ("infrastructure", "corrupt"), ("tool", "oversized"),
    ]  # fmt: skip


def test_http_retries_after_a_dropped_connection() -> None:
    asked: list[int] = []

    def answer(_: Any) -> Any:
        asked.append(1)
        return None if len(asked) < 3 else (200, {}, b"7")

    with http_server(answer) as url:
        (result,) = calls([], [HttpService(url, options={"idempotent": True})], ("tool", {}), options=FAST)
    assert (result.value, result.call.attempts) == (7, 3)


def test_a_dead_http_service_is_the_infrastructures() -> None:
    (result,) = calls([], [HttpService(f"http://127.0.0.1:{free_port()}/x")], ("x", {}))
    assert (result.call.blame, result.call.kind) == ("infrastructure", "connection")


def test_mcp_over_stdio_comes_back_after_the_server_died(tmp_path: Path) -> None:
    server = McpServer(mcp_script(tmp_path))
    mark = str(tmp_path / "died")
    results = calls(
        [], [server], ("double", {"number": 4}), ("double", {"number": "x"}), ("fail", {}), ("die_once", {"path": mark}),
        ("double", {"number": 5}), options=FAST,
    )  # fmt: skip
    assert [one.text for one in (results[0], results[3], results[4])] == ["8", "alive", "10"]
    assert (results[1].call.blame, results[1].call.attempts) == ("policy", 0)
    assert (results[2].call.blame, results[2].call.kind) == ("tool", "error")
    assert results[3].call.attempts == 2  # read-only, so asked again


def test_mcp_over_streamable_http(tmp_path: Path) -> None:
    port = free_port()
    with running([*mcp_script(tmp_path), str(port)]) as child:
        wait_until(lambda: child.poll() is not None or _listens(port))
        url = f"http://127.0.0.1:{port}/mcp"
        assert resolve_target(url)[1] == [McpServer(url)]
        (result,) = calls([], [McpServer(url)], ("double", {"number": 21}))
        assert result.text == "42"


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no licence')"], "no licence"),
        (["/nowhere/server"], "MCP server /nowhere/server"),
        ("http://127.0.0.1:9/mcp", "MCP server http://127.0.0.1:9/mcp"),
    ],
)
def test_a_dead_mcp_server_is_one_line(server: Any, message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        calls([], [McpServer(server, connect_s=10)])
    assert "\n" not in str(caught.value)


def test_a_command_gets_its_arguments_without_a_shell() -> None:
    echo = command_tool("echo", ["echo", "got {n}"], NUMBER)
    (result,) = calls([echo], [], ("echo", {"n": "$(id); {n}"}))
    assert result.text == "got $(id); {n}\n"


def test_failures_of_commands() -> None:
    tools = [
        command_tool("code", ["sh", "-c", "echo why >&2; exit 3"], {}),
        command_tool("killed", ["sh", "-c", "kill -9 $$"], {}),
        command_tool("absent", ["/nowhere/command"], {}),
        command_tool("slow", ["sleep", "30"], {}, timeout_s=0.2),
    ]
    results = calls(tools, [], *((one.name, {}) for one in tools))
    assert [(one.call.blame, one.call.kind) for one in results] == [
        ("tool", "exit_code"), ("infrastructure", "sandbox_died"), ("infrastructure", "sandbox_died"), ("tool", "timeout"),
    ]  # fmt: skip
    assert "why" in results[0].text
    with pytest.raises(ToolError, match="names no argument"):
        command_tool("wrong", ["echo", "{m}"], NUMBER)


def test_a_timeout_ends_a_command_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    parent = command_tool("parent", ["sh", "-c", f"sleep 300 & echo $! > {pid}; wait"], {}, timeout_s=0.5)
    (result,) = calls([parent], [], ("parent", {}))
    assert result.call.kind == "timeout"
    child = int(pid.read_text())
    wait_until(lambda: _ended(child))


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] in "ZX"
    except OSError:
        return True


needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@needs_bwrap
def test_the_sandbox_runs_code_and_keeps_it_in() -> None:
    code = {
        "print": "print(6 * 7)",
        "files": f"import os\nprint(os.path.exists({str(Path(__file__))!r}), os.path.exists({str(Path.cwd())!r}), os.listdir())",
        "network": "import socket\nsocket.create_connection(('127.0.0.1', 80), 2)",
        "error": "print('before')\n1 / 0",
        "memory": "x = bytearray(10**10)",
        "killed": "import os\nos.kill(os.getpid(), 9)",
        "disk": "open('a', 'wb').write(bytes(2 * 10**6))",
    }
    limits = SandboxLimits(cpu_s=5, file_bytes=10**6)
    tool = sandbox_tool(limits=limits)
    results = dict(
        zip(code, calls([tool], [], *(("python", {"code": text}) for text in code.values())), strict=True)
    )
    assert results["print"].text == "42\n", results["print"].text
    assert results["files"].text == "False False []\n"
    kinds = {name: (one.call.blame, one.call.kind) for name, one in results.items() if not one.ok}
    assert kinds == {
        "network": ("tool", "code_error"), "error": ("tool", "code_error"), "memory": ("tool", "resource_limit"),
        "killed": ("infrastructure", "sandbox_died"), "disk": ("tool", "code_error"),
    }  # fmt: skip
    assert "File too large" in results["disk"].text
    assert "before" in results["error"].text
    assert "ZeroDivisionError" in results["error"].text


def test_without_bubblewrap_the_sandbox_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(ToolError, match="needs bubblewrap"):
        sandbox_tool()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("json:nothing", "module json has no nothing"),
        ("nowhere_module:x", "nowhere_module cannot be imported"),
        ("math:pi", "is not a tool"),
        ("nowhere-command --x", "nowhere-command is not a command"),
        ("http://example.com/mcp", "not on loopback"),
        ("http://10.0.0.1/x", "not on loopback"),
        ("'", "cannot be read as a command"),
        ("", "is not a command"),
    ],
)
def test_bad_targets_are_one_line(target: str, message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        resolve_target(target)
    assert "\n" not in str(caught.value)


def test_targets_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_tools.py").write_text(
        "def a(n: int) -> int:\n    return n\n\ndef b() -> int:\n    return 2\n\ntools = [a, b]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    tools, sources = resolve_target("my_own_tools:tools")
    assert ([one.name for one in tools], sources) == (["a", "b"], [])
    assert json.dumps(tools[0].schema["properties"]) == '{"n": {"type": "integer"}}'  # type: ignore[index]
    assert os.getcwd() == str(tmp_path)
