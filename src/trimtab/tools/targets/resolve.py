"""TARGET of the command line to tools: `module:function`, an MCP command, or a URL on loopback."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from trimtab.errors import ToolError
from trimtab.tools.executor import Source
from trimtab.tools.failures import exit_failure
from trimtab.tools.targets.http_service import HttpService
from trimtab.tools.targets.mcp_server import McpServer
from trimtab.tools.tool_definition import Tool, tool
from trimtab.user_code import load_object


def resolve_target(target: str, *, mcp: bool | None = None) -> tuple[list[Tool], list[Source]]:
    """Return the tools and the sources that a text names.

    Args:
        target: `module:name` or `path/file.py:name` (a function, a `Tool`, or a list of these),
            `http://127.0.0.1:PORT/PATH` (MCP where the path ends with /mcp or `mcp` is set, a plain service
            otherwise), or a command that starts an MCP server.
        mcp: Is a URL that of an MCP server?

    Returns:
        Tools that are ready, and sources that an executor opens.

    Raises:
        ToolError: Nothing there, or a URL that is not on loopback.

    Example:
        >>> [one.name for one in resolve_target("json:loads")[0]]
        ['loads']
    """
    if target.startswith(("http://", "https://")):
        require_loopback(target)
        is_mcp = mcp if mcp is not None else urlsplit(target).path.rstrip("/").endswith("/mcp")
        return [], [McpServer(target) if is_mcp else HttpService(target)]
    words = _words(target)
    module, colon, name = target.rpartition(":")
    imported = module.endswith(".py") or all(part.isidentifier() for part in module.split("."))
    if colon and imported and name.isidentifier():
        return _imported(module, name), []
    if not words or shutil.which(words[0]) is None:
        first = words[0] if words else target
        raise ToolError(
            f"{first} is not a command; give module:function, path/file.py:function, an MCP server's "
            "command, or a URL on loopback"
        )
    return [], [McpServer(words)]


def require_loopback(url: str) -> None:
    """ToolError for a URL of another machine: a stress test is no way to meet a stranger's server."""
    host = urlsplit(url).hostname or ""
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise ToolError(f"{url} is not on loopback: stress tests go to 127.0.0.1, ::1 or localhost only")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ToolError(f"{text!r} cannot be read as a command: {error}") from error


def _imported(module: str, name: str) -> list[Tool]:
    try:
        value = load_object(module, name, ToolError)
    except SystemExit as error:
        raise ToolError(f"{module} {exit_failure(error)}, while it was imported") from error
    except ToolError:
        raise
    except Exception as error:  # of the user's module
        raise ToolError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    tools = [_as_tool(one) for one in _several(value)]
    if not tools:
        raise ToolError(f"{module}:{name} has no tools in it")
    return tools


def _several(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _as_tool(value: Any) -> Tool:
    if isinstance(value, Tool):
        return value
    if not callable(value):
        raise ToolError(f"{value!r} is not a tool: give a function, a trimtab Tool, or a list of these")
    return tool(value)
