"""Executor of tool calls with blame, and stress tests of tools."""

from __future__ import annotations

from trimtab.tools.executor import Executor, ExecutorOptions
from trimtab.tools.failures import ToolFailure
from trimtab.tools.retries import RetryOptions
from trimtab.tools.tool_definition import Tool, ToolResult, tool, with_options

__all__ = [
    "Executor",
    "ExecutorOptions",
    "RetryOptions",
    "Tool",
    "ToolFailure",
    "ToolResult",
    "tool",
    "with_options",
]
