"""The executor for loops without an event loop, and as plain functions for TRL's `tools=`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

from trimtab.tools.executor import Executor
from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure
from trimtab.tools.tool_definition import Tool, ToolResult
from trimtab.traces.core.tool_call import ToolCall


class ToolText(str):
    """A result's text that carries its `ToolCall`; for any other reader a plain string."""

    call: ToolCall

    @classmethod
    def of(cls, result: ToolResult) -> ToolText:
        """The text of a result."""
        text = cls(result.text)
        text.call = result.call
        return text


class FailedCall(ToolFailure):
    """A failed call, raised by the functions that `ExecutorThread.functions` returns."""

    def __init__(self, call: ToolCall, text: str) -> None:
        super().__init__(call.blame or "tool", call.kind or "error", text)  # type: ignore[arg-type]
        self.call = call


class ExecutorThread:
    """An executor in an event loop of its own thread, for code that has none.

    >>> from trimtab.tools import tool
    >>> def length(text: str) -> int:
    ...     return len(text)
    >>> with ExecutorThread(Executor([tool(length)])) as thread:
    ...     thread.call("length", {"text": "tofa"}).value
    4
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._stack = ExitStack()
        self._portal: Any = None

    def __enter__(self) -> ExecutorThread:
        with ExitStack() as stack:
            start = library("anyio.from_thread").start_blocking_portal
            self._portal = stack.enter_context(start())
            stack.enter_context(self._portal.wrap_async_context_manager(self.executor))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def call(self, name: str, arguments: Any = None, *, episode_id: int = -1, step: int = -1) -> ToolResult:
        """`Executor.call`, from any thread."""
        call = partial(self.executor.call, name, arguments, episode_id=episode_id, step=step)
        result: ToolResult = self._portal.call(call)
        return result

    def functions(self) -> list[Callable[..., Any]]:
        """The tools as coroutine functions with names, signatures and docstrings, as TRL's `tools=` takes.

        Calls of one turn run at a time. A failed call raises `FailedCall`, whose text TRL shows the model;
        `watch` takes blame, attempts and queue time from it.
        """
        return [self._function(one) for one in self.executor.tools]

    def _function(self, one: Tool) -> Callable[..., Any]:
        async def function(**arguments: Any) -> ToolText:
            call = partial(self.executor.call, one.name, arguments)
            result = await asyncio.wrap_future(self._portal.start_task_soon(call))
            if result.call.error:
                raise FailedCall(result.call, result.text.removeprefix("error: "))
            return ToolText.of(result)

        function.__name__ = function.__qualname__ = one.name
        properties = dict((one.schema or {}).get("properties", {}))
        required = set((one.schema or {}).get("required", ()))
        function.__doc__ = _docstring(one, properties)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(
                name, kind, annotation=_annotation(schema),
                default=inspect.Parameter.empty if name in required else schema.get("default"),
            )
            for name, schema in properties.items()
        ]  # fmt: skip
        function.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
        function.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": str}
        return function


def _docstring(one: Tool, properties: dict[str, Any]) -> str:
    """The docstring that transformers reads a schema from: a description, then every argument."""
    lines = [one.description or one.name]
    if properties:
        texts = {name: " ".join(str(s.get("description") or name).split()) for name, s in properties.items()}
        lines += ["", "Args:", *(f"    {name}: {text}" for name, text in texts.items())]
    return "\n".join([*lines, "", "Returns:", "    The result, as text."])


def _annotation(schema: dict[str, Any]) -> Any:
    kinds = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
    kind = schema.get("type")
    return kinds.get(kind, str) if isinstance(kind, str) else str
