"""What a tool can be: a Python function, a command, an HTTP service, an MCP server, sandboxed code."""

from trimtab.tools.targets.command import command_tool
from trimtab.tools.targets.http_service import HttpService
from trimtab.tools.targets.mcp_server import McpServer
from trimtab.tools.targets.python_sandbox import SandboxLimits, sandbox_tool
from trimtab.tools.targets.resolve import resolve_target

__all__ = [
    "HttpService",
    "McpServer",
    "SandboxLimits",
    "command_tool",
    "resolve_target",
    "sandbox_tool",
]
