"""Blame of a failed MCP call, as far as the protocol or an official SDK's text says whose failure it was.

A result with `isError` carries a text and no code. The SDKs write known texts where a call never reached the
tool's own code: these are recognised at the start of the text. Any other text is the tool's.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from trimtab.tools.failures import ToolFailure, text_failure
from trimtab.traces.core.plural import counted

CLOSED, TIMED_OUT, INVALID_REQUEST, NO_METHOD, BAD_PARAMS, INTERNAL = (
    -32000, -32001, -32600, -32601, -32602, -32603,
)  # fmt: skip
"""Codes of JSON-RPC and of the SDKs."""
_CODE = re.compile(r"(?:MCP error (-\d+): ?)+")
_UNKNOWN = re.compile(r"Unknown tool: |Tool \S+ (?:not found|disabled)")
_ARGUMENTS = re.compile(
    r"Input validation error: |Invalid arguments for tool "
    r"|(?:Error executing tool [^:\n]+: )?\d+ validation errors? for \w+Arguments\n"
)
_RESULT = re.compile(r"Output validation error: ")


def result_failure(text: str) -> ToolFailure:
    """Return the failure that a result with `isError` says.

    Args:
        text: Text of the result.

    Returns:
        policy for an unknown tool, for arguments that the server's schema refused and for a database's wrong
        statement; infrastructure for a lost connection that a proxy reports and for a database that is locked
        or gone; tool for everything else, as the text is the tool's own.

    Example:
        >>> one = result_failure("MCP error -32602: Tool serch not found")
        >>> one.blame, one.kind
        ('policy', 'unknown_tool')

    Reference:
        Python SDK 1.30 `server/lowlevel/server.py` ("Input validation error: ..."), 1.30 and 2.3
        `tools/tool_manager.py` ("Unknown tool: ...") and `tools/base.py` ("Error executing tool NAME: ...",
        with pydantic's "N validation errors for NAMEArguments"); TypeScript SDK 1.32 `server/mcp.js`.
    """
    code = _CODE.match(text)
    if code is None:
        return _of_text(text)
    return code_failure(int(code[1]), text[code.end() :])


def code_failure(code: int, message: str) -> ToolFailure:
    """Return the failure that a JSON-RPC error says.

    >>> [code_failure(code, "no").blame for code in (BAD_PARAMS, NO_METHOD, CLOSED, TIMED_OUT, INTERNAL)]
    ['policy', 'policy', 'infrastructure', 'tool', 'tool']
    """
    if code in (CLOSED, INVALID_REQUEST):
        return ToolFailure("infrastructure", "connection", message)
    if code == TIMED_OUT:
        return ToolFailure("tool", "timeout", message)
    known = _of_text(message)
    if known.kind == "error" and code in (BAD_PARAMS, NO_METHOD):
        return ToolFailure("policy", "refused", message)
    return known


def _of_text(text: str) -> ToolFailure:
    shown = text[:2000]
    if _UNKNOWN.match(text):
        return ToolFailure("policy", "unknown_tool", shown)
    if _ARGUMENTS.match(text):
        return ToolFailure("policy", "bad_arguments", shown)
    if _RESULT.match(text):
        return ToolFailure("tool", "bad_result", shown)
    return text_failure(shown)


class StrayOutput(logging.Filter):
    """What servers wrote to standard output beside messages of the protocol.

    The SDK logs each such line with a traceback. This filter of its logger counts them instead, and keeps
    the first, so that one line can say it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num, self.first = 0, ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Swallow and count the SDK's report of a line that it could not read."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or "parse JSONRPC" not in record.getMessage():
            return True
        if not self.num:
            self.first = _refused_line(error)
        self.num += 1
        return False

    def sentence(self) -> str:
        """The finding in words, empty where there was none."""
        if not self.num:
            return ""
        more = f" and {counted(self.num - 1, 'more line')}" if self.num > 1 else ""
        return f"it wrote {self.first!r}{more} to standard output, where only JSON-RPC may stand"


def _refused_line(error: Any) -> str:
    details = error.errors() if hasattr(error, "errors") else []
    return str(details[0].get("input", ""))[:80].strip() if details else ""
