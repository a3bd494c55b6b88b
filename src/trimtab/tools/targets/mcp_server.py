"""Tools of an MCP server, over standard input and output or streamable HTTP, through the official SDK."""

from __future__ import annotations

import logging
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trimtab.errors import ToolError
from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure, http_failure
from trimtab.tools.targets.mcp_failures import (
    CLOSED,
    INTERNAL,
    INVALID_REQUEST,
    StrayOutput,
    code_failure,
    result_failure,
)
from trimtab.tools.tool_definition import Arguments, Tool, with_options

_LOG = logging.getLogger(__name__)
_CONNECT_S = 30.0
_NPM = ("npm error 4", "npm ERR! 4", "npm error could not")
"""Beginnings of the lines in which npm says why it failed; its last line only names a log."""


@dataclass
class McpServer:
    """A source of the tools of one server: a command line, or a URL of streamable HTTP.

    A connection that breaks is opened again by the next call. What the server says of a tool's idempotence
    is believed with `trust_hints`; it decides whether calls are retried.
    """

    server: str | Sequence[str]
    prefix: str = ""  # before the name of each tool, where two servers share names
    trust_hints: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)  # of the command, beside PATH and HOME
    options: Mapping[str, Any] = field(default_factory=dict)  # fields of `Tool`, for all of them
    connect_s: float = _CONNECT_S

    def __post_init__(self) -> None:
        self._client: Any = None
        self._stop: Any = None
        self._status, self._retry_after = 0, ""
        self._log: Any = None
        self._stray = StrayOutput()
        self._num_broken, self._broken_text = 0, ""

    @property
    def label(self) -> str:
        """What messages call the server."""
        return self.server if isinstance(self.server, str) else shlex.join(self.server)

    async def open(self, stack: AsyncExitStack) -> Iterable[Tool]:
        """Connect and list the tools. ToolError for a server that does not start or answer."""
        library("mcp")
        anyio = library("anyio")
        logging.getLogger("mcp").setLevel(logging.ERROR)
        self._lock = anyio.Lock()
        self._log = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))  # noqa: SIM115
        self._group = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(self._close)
        self._stray = StrayOutput()
        logging.getLogger("mcp.client.stdio").addFilter(self._stray)
        stack.callback(logging.getLogger("mcp.client.stdio").removeFilter, self._stray)
        try:
            client = await self._connected()
            with anyio.fail_after(self.connect_s):
                listed = [one async for one in _all_tools(client)]
        except ToolFailure as failure:
            raise ToolError(f"MCP server {self.label}: {failure}{self._hint()}") from failure
        except (TimeoutError, library("mcp").MCPError) as error:
            text = str(error) or f"no answer in {self.connect_s:g} s"
            raise ToolError(f"MCP server {self.label} cannot list its tools: {text}{self._hint()}") from error
        if not listed:
            raise ToolError(f"MCP server {self.label} has no tools")
        stack.callback(self._report_stray)
        return [self._tool(one) for one in listed]

    def _tool(self, one: Any) -> Tool:
        hints = one.annotations if self.trust_hints else None
        repeatable = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
        tool = Tool(
            name=self.prefix + one.name, run=partial(self._call, one.name), description=one.description or "",
            schema=one.input_schema, target=self.label, idempotent=repeatable, adaptive=True,
        )  # fmt: skip
        return with_options(tool, **self.options)

    async def _call(self, name: str, arguments: Arguments) -> Any:
        client = self._client or await self._connected()
        try:
            # the session, not the client: the client's cache and its rounds of input are not for rollouts
            result = await client.session.call_tool(name, dict(arguments))
        except library("mcp").MCPError as error:
            raise self._failure(error, client) from error
        except RuntimeError as error:  # the SDK's word for a result it cannot check or use
            raise ToolFailure("tool", "bad_result", str(error)) from error
        text = "\n".join(_content_text(one) for one in result.content)
        if result.is_error:
            raise result_failure(text)
        return text

    def _failure(self, error: Any, client: Any) -> ToolFailure:
        status, self._status = self._status, 0
        if error.code == INTERNAL and status >= 400:
            return http_failure(status, f"HTTP {status} from {self.label}", self._retry_after)
        if error.code in (CLOSED, INVALID_REQUEST) or "Session terminated" in error.message:
            self._drop(client)
            return ToolFailure("infrastructure", "connection", f"{error.message} by {self.label}")
        return code_failure(error.code, error.message)

    async def _connected(self) -> Any:
        """The client, connected again if the connection broke. Raises ToolFailure where that fails."""
        before = self._num_broken
        async with self._lock:
            if self._client is None and self._num_broken > before:  # tried while this call was in line
                raise ToolFailure("infrastructure", "connection", self._broken_text)
            if self._client is None:
                try:
                    with library("anyio").fail_after(self.connect_s):
                        self._client = await self._group.start(self._serve)
                except TimeoutError as error:
                    raise self._broken(f"no answer in {self.connect_s:g} s") from error
                except ToolFailure as failure:
                    raise self._broken(str(failure)) from failure
            return self._client

    def _broken(self, text: str) -> ToolFailure:
        """A failed connection, counted: the calls in line share it, and start no server each."""
        self._num_broken += 1
        self._broken_text = text
        return ToolFailure("infrastructure", "connection", text)

    async def _serve(self, *, task_status: Any) -> None:
        """Hold one connection open, in a task of its own, until it is dropped or breaks."""
        stop, client, broken = library("anyio").Event(), None, None
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(library("mcp").Client(await self._transport(stack)))
                self._stop = stop
                task_status.started(client)
                await stop.wait()
        except Exception as error:  # of the transport, in groups of any depth
            broken = error
        self._drop(client)
        if client is None and broken is not None:
            raise ToolFailure("infrastructure", "connection", _first_line(broken)) from broken

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if isinstance(self.server, str) and self.server.startswith(("http://", "https://")):
            http = library("httpx2")
            client = http.AsyncClient(
                timeout=http.Timeout(30.0, read=300.0),
                trust_env=False,
                event_hooks={"response": [self._note]},
            )
            await stack.enter_async_context(client)
            return library("mcp.client.streamable_http").streamable_http_client(
                self.server, http_client=client
            )
        words = shlex.split(self.server) if isinstance(self.server, str) else list(self.server)
        if not words:
            raise ToolFailure("infrastructure", "connection", "the command is empty")
        stdio = library("mcp.client.stdio")
        parameters = stdio.StdioServerParameters(
            command=words[0], args=words[1:], env=dict(self.environment) or None
        )
        return stdio.stdio_client(parameters, errlog=self._log)

    async def _note(self, response: Any) -> None:
        if response.status_code >= 400:
            self._status = response.status_code
            self._retry_after = response.headers.get("retry-after", "")

    def _drop(self, client: Any) -> None:
        if self._client is client:
            self._client = None
            if self._stop is not None:
                self._stop.set()

    def _close(self) -> None:
        self._client = None
        self._group.cancel_scope.cancel()

    def _hint(self) -> str:
        """What else is known of a server that did not start: its status, what it wrote, and where."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read()[-4000:].splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith(_NPM)] or lines[-1:]
        words = [f"it wrote: {causes[0][:200]}"] if causes else []
        if self._stray.num:
            words.append(self._stray.sentence())
        if self._status:
            words.append(f"HTTP {self._status}; is this the URL of an MCP server?")
        return f" ({'; '.join(words)})" if words else ""

    def _report_stray(self) -> None:
        if self._stray.num:
            _LOG.warning("MCP server %s: %s", self.label, self._stray.sentence())


async def _all_tools(client: Any) -> Any:
    cursor = None
    for _ in range(1000):
        page = await client.list_tools(cursor=cursor)
        for one in page.tools:
            yield one
        cursor = page.next_cursor
        if cursor is None:
            return


def _content_text(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    return str(block.model_dump_json(by_alias=True, exclude_none=True))


def _first_line(error: BaseException) -> str:
    """The innermost error of nested groups, in one line."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
