"""A tool as the executor runs it, whatever stands behind it, and what one call of it gives."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trimtab.errors import ToolError
from trimtab.tools.extras import library
from trimtab.tools.limits import positive
from trimtab.tools.signatures import function_schema
from trimtab.traces.core.tool_call import ToolCall

Arguments = Mapping[str, Any]
CheckResult = Callable[[Arguments, Any], str]
CLIPPED = "\n[result cut: {shown} of {size} characters]"


@dataclass(frozen=True)
class Tool:
    """One tool: an asynchronous function of its arguments, and how it may be used."""

    name: str
    run: Callable[[Arguments], Awaitable[Any]]
    description: str = ""
    schema: Mapping[str, Any] | None = None  # JSON schema of the arguments; None: not validated
    target: str = ""  # what it shares limits, breaker and adaptive limit with; "": nothing
    idempotent: bool = False  # may a call be repeated? Never retried otherwise
    timeout_s: float = 60.0  # of one attempt
    limit: int | None = None  # calls of this tool at a time
    adaptive: bool = False  # find the target's limit by AIMD
    cache: bool = False  # answer equal arguments from memory; only where idempotent
    max_result_chars: int = 100_000  # longer results are cut, and say so
    check_result: CheckResult | None = None  # what is wrong with a result, "" if nothing

    def __post_init__(self) -> None:
        if not self.name:
            raise ToolError("a tool has no name: give Tool(name=...)")
        if not self.timeout_s > 0 or self.max_result_chars < 1:
            raise ToolError(f"tool {self.name}: timeout_s and max_result_chars must be above zero")
        if self.cache and not self.idempotent:
            raise ToolError(f"tool {self.name}: cache=True wants idempotent=True, or calls would be lost")
        if self.limit is not None:
            positive(self.limit)


@dataclass(frozen=True)
class ToolResult:
    """What a call gave: the tool's value (None on failure), the text for the model, and the record."""

    value: Any
    text: str
    call: ToolCall

    @property
    def ok(self) -> bool:
        """True where the tool answered."""
        return not self.call.error


def tool(function: Callable[..., Any], **options: Any) -> Tool:
    """Return a Python function as a tool; a synchronous one runs in a thread.

    Args:
        function: Called with the arguments by name. It may be a coroutine function.
        options: Fields of `Tool`; name, description and schema come from the function otherwise.

    Returns:
        The tool. A thread that hangs cannot be ended: after the timeout it is left to itself.

    Example:
        >>> def stock(item: str) -> int:
        ...     "Pieces in stock."
        ...     return 3
        >>> tool(stock, idempotent=True).description
        'Pieces in stock.'
    """
    known = {
        "name": getattr(function, "__name__", type(function).__name__),
        "description": (inspect.getdoc(function) or "").partition("\n")[0],
        "schema": function_schema(function),
    }
    run = _asynchronous(function) if inspect.iscoroutinefunction(function) else _threaded(function)
    return Tool(run=run, **{**known, **options})


def with_options(one: Tool, **options: Any) -> Tool:
    """Return a tool with other fields.

    Args:
        one: The tool.
        options: Fields of `Tool`.

    Returns:
        A copy.

    Example:
        >>> with_options(tool(len, schema=None), timeout_s=2.0).timeout_s
        2.0
    """
    return replace(one, **options)


def result_text(value: Any) -> str:
    """Return a result as the text a model reads: text as it is, anything else as JSON.

    >>> result_text("a"), result_text(None), result_text({"b": 1})
    ('a', '', '{"b": 1}')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def clipped(text: str, maximum: int) -> str:
    """Return a text of at most `maximum` characters and a note of what was cut.

    >>> clipped("abcdef", 3)
    'abc\\n[result cut: 3 of 6 characters]'
    """
    return text if len(text) <= maximum else text[:maximum] + CLIPPED.format(shown=maximum, size=len(text))


def validator(one: Tool) -> Any:
    """Return the compiled schema of a tool's arguments, None without one. ToolError for a bad schema."""
    if one.schema is None:
        return None
    schemas = library("jsonschema_rs")
    try:
        return schemas.validator_for(dict(one.schema))
    except (ValueError, schemas.ReferencingError, schemas.ValidationError) as error:
        first = str(error).splitlines()[0]
        raise ToolError(f"tool {one.name}: its arguments' schema is malformed: {first}") from error


def _asynchronous(function: Callable[..., Awaitable[Any]]) -> Callable[[Arguments], Awaitable[Any]]:
    def run(arguments: Arguments) -> Awaitable[Any]:
        return function(**arguments)

    return run


def _threaded(function: Callable[..., Any]) -> Callable[[Arguments], Awaitable[Any]]:
    limiters: list[Any] = []  # made in the event loop that uses it

    async def run(arguments: Arguments) -> Any:
        anyio = library("anyio")
        if not limiters:
            limiters.append(anyio.CapacityLimiter(1_000_000))  # the executor's own limits decide
        call = partial(function, **arguments)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiters[0])

    return run
