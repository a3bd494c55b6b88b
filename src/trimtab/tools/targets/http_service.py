"""HTTP services as tools: one POST or GET a call, over one pool of connections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from trimtab.errors import ToolError
from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure, http_failure
from trimtab.tools.tool_definition import Arguments, Tool

_CONNECTIONS = 4096


@dataclass
class HttpService:
    """A source of one tool behind a URL.

    A POST sends the arguments as a JSON object, a GET as the query. The result is the body, parsed where it
    is JSON. Statuses become blame (`failures.http_failure`), and Retry-After is honoured. Proxies of the
    environment are not used.
    """

    url: str
    name: str = ""  # the last part of the URL's path by default
    method: str = "POST"
    schema: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # fields of `Tool`
    max_bytes: int = 4_000_000  # of a body; what is longer is an error of the tool

    async def open(self, stack: AsyncExitStack) -> Iterable[Tool]:
        """Open the pool. ToolError for a URL or method that cannot be right; the service is not asked yet."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ToolError(f"{self.url} is not a URL of a service: give http://HOST:PORT/PATH")
        if self.method not in ("GET", "POST"):
            raise ToolError(f"{self.url}: method {self.method} is not GET or POST")
        http = library("httpx2")
        limits = http.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        client = http.AsyncClient(
            timeout=http.Timeout(None, connect=10.0),
            limits=limits,
            headers=dict(self.headers),
            trust_env=False,
        )
        await stack.enter_async_context(client)
        name = self.name or parts.path.rstrip("/").rpartition("/")[2] or parts.hostname

        async def run(arguments: Arguments) -> Any:
            return await self._ask(http, client, arguments)

        known = {
            "target": f"{parts.scheme}://{parts.netloc}",
            "adaptive": True,
            "idempotent": self.method == "GET",
        }
        return [Tool(name=name, run=run, schema=self.schema, **{**known, **self.options})]

    async def _ask(self, http: Any, client: Any, arguments: Arguments) -> Any:
        body = {"params": dict(arguments)} if self.method == "GET" else {"json": dict(arguments)}
        try:
            async with client.stream(self.method, self.url, **body) as response:
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > self.max_bytes:
                        text = f"the answer is longer than {self.max_bytes} bytes"
                        raise ToolFailure("tool", "oversized", text)
                if response.status_code >= 400:
                    text = f"HTTP {response.status_code}{self._answer_text(response, bytes(content))}"
                    raise http_failure(response.status_code, text, response.headers.get("retry-after", ""))
                return _parsed(response, bytes(content))
        except http.ConnectTimeout as error:
            raise ToolFailure("infrastructure", "connection", f"no connection in 10 s: {self.url}") from error
        except http.TransportError as error:
            raise ToolFailure(
                "infrastructure", "connection", f"{type(error).__name__}: {error or self.url}"
            ) from error

    def _answer_text(self, response: Any, content: bytes) -> str:
        """What a refusal says, but no page of HTML; of a path that is not there also what to try."""
        parts = urlsplit(self.url)
        text = " ".join(content[:300].decode(errors="replace").split())
        is_page = "html" in response.headers.get("content-type", "") or text[:1] == "<"
        shown = f": {text}" if text and not is_page else f" from {self.url}"
        if response.status_code == 404 and (is_page or not parts.path.strip("/")):
            return f"{shown}; if it is an MCP server, give {parts.scheme}://{parts.netloc}/mcp"
        return shown


def _parsed(response: Any, content: bytes) -> Any:
    if "json" not in response.headers.get("content-type", ""):
        return content.decode(response.encoding or "utf-8", errors="replace")
    import msgspec

    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolFailure(
            "infrastructure", "corrupt", f"the answer is not the JSON it claims: {error}"
        ) from error
