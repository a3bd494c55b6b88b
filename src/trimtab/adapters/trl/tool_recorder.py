"""Tool calls as TRL makes them: name, arguments, result size, error and latency.

What is called does not change.
TRL looks tools up by name in per-row dicts during `_tool_call_loop`; those entries are timed while the loop
runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trimtab.monitor import Run
from trimtab.tools.blocking import FailedCall, ToolText
from trimtab.traces.core.tool_call import ToolCall


class ToolRecorder:
    """Wraps `_tool_call_loop` of a trainer.

    `names[row]` lists the tools of a row in the order of their results, one a turn.
    """

    def __init__(self, trainer: Any, run: Run) -> None:
        self.trainer, self.run = trainer, run
        self.names: list[list[str]] = []
        self.known: set[str] = set()
        self._inner = trainer._tool_call_loop
        trainer._tool_call_loop = self._loop

    def _loop(self, *args: Any, **kwargs: Any) -> Any:
        trainer = self.trainer
        sync, asynchronous = trainer._sync_tool_dicts, trainer._async_tool_dicts
        self.known |= {name for tools in (*sync, *asynchronous) for name in tools}
        with self.run.isolated("wrap tools"):
            trainer._sync_tool_dicts = [{n: self._timed(n, f) for n, f in tools.items()} for tools in sync]
            trainer._async_tool_dicts = [
                {n: self._timed_async(n, f) for n, f in tools.items()} for tools in asynchronous
            ]
        try:
            result = self._inner(*args, **kwargs)
        finally:
            trainer._sync_tool_dicts, trainer._async_tool_dicts = sync, asynchronous
        with self.run.isolated("read tool results"):
            self._read(result[1], [set(a) | set(b) for a, b in zip(sync, asynchronous, strict=True)])
        return result

    def _read(self, completions: list[list[dict[str, Any]]], known: list[set[str]]) -> None:
        """Name consecutive tool messages, one a turn; record calls of unknown tools as errors."""
        self.names = []
        for row, messages in enumerate(completions):
            turns: list[str] = []
            previous = ""
            for message in messages:
                if message["role"] == "tool":
                    if previous == "tool":
                        turns.pop()
                    turns.append(str(message.get("name", "other")))
                previous = message["role"]
                for call in message.get("tool_calls") or []:
                    function = call.get("function", {})
                    if function.get("name") not in known[row]:
                        timed = _TimedCall(
                            self.run, str(function.get("name")), function.get("arguments") or {}
                        )
                        timed.record(0, "unknown tool", 0.0)
            self.names.append(turns)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            with _TimedCall(self.run, name, arguments) as timed:
                result = function(*args, **arguments)
            return timed.finish(result)

        return call

    def _timed_async(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            async def run() -> Any:
                with timed:
                    result = await coroutine
                return timed.finish(result)

            # bad arguments raise here, as without the recorder
            with _TimedCall(self.run, name, arguments) as timed:
                coroutine = function(*args, **arguments)
            return run()

        return call


class _TimedCall:
    """One tool call; the clock runs from its creation.

    An error that leaves the `with` block is recorded, then raised.
    """

    def __init__(self, run: Run, name: str, arguments: Mapping[str, Any]) -> None:
        self.run, self.name, self.arguments = run, name, arguments
        self.start = time.perf_counter()

    def __enter__(self) -> _TimedCall:
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, FailedCall):
            self.pass_on(error.call)
        elif error is not None:
            self.record(0, f"{type(error).__name__}: {error}", time.perf_counter() - self.start)

    def finish(self, result: Any) -> Any:
        """Record a call that returned, and return its result."""
        if isinstance(result, ToolText):
            self.pass_on(result.call)
            return result
        seconds = time.perf_counter() - self.start
        with self.run.isolated("measure tool result"):
            self.record(0 if result is None else len(str(result)), "", seconds)
        return result

    def pass_on(self, call: ToolCall) -> None:
        """Hand on the record that an executor made, with blame, attempts and queue time."""
        with self.run.isolated("record tool call"):
            self.run.tool_call(call)

    def record(self, size: int, error: str, seconds: float) -> None:
        """Hand the call to the run; a failure of trimtab does not reach the tool."""
        with self.run.isolated("record tool call"):
            self.run.tool_call(ToolCall(self.name, dict(self.arguments), size, error, seconds))
