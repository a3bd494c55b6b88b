"""Real servers for tests: HTTP on loopback with a handler, and an MCP server of the official SDK as a script."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = tuple[int, dict[str, str], bytes]

MCP_SCRIPT = '''
import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("test")


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def double(number: int) -> str:
    """Twice a number."""
    return str(2 * number)


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("no such row")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def die_once(path: str) -> str:
    """Ends the server at its first call."""
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(3)
    return "alive"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
'''


def mcp_script(folder: Path) -> list[str]:
    """The command of the MCP server, over standard input and output; a port after it makes it streamable HTTP."""
    path = folder / "mcp_test_server.py"
    path.write_text(MCP_SCRIPT, encoding="utf-8")
    return [sys.executable, str(path)]


@contextmanager
def http_server(answer: Callable[[Any], Answer | None]) -> Iterator[str]:
    """A server on loopback; `answer` takes the JSON of a POST and returns status, headers and body, or None to drop the connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            reply = answer(json.loads(body))
            if reply is None:
                self.close_connection = True
                return
            status, headers, content = reply
            self.send_response(status)
            for name, value in {
                "content-type": "application/json",
                **headers,
                "content-length": str(len(content)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/tool"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def wait_until(condition: Callable[[], bool], limit: float = 120.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
