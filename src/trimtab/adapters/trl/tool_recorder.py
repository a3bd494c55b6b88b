"""Tool calls as TRL makes them: name, arguments, result size, error and latency, without changing what is called.

TRL looks tools up by name in per-row dicts during `_tool_call_loop`; those entries are timed while the loop runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trimtab.monitor import Run
from trimtab.traces.core.tool_call import ToolCall


class ToolRecorder:
    """Wraps `_tool_call_loop` of a trainer. `names[row]` lists the tools in the order of their results, a turn each."""

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
        """Names of consecutive tool messages, one a turn; a call of a tool that does not exist is an error too."""
        self.names = []
        for row, messages in enumerate(completions):
            turns: list[str] = []
            previous = ""
            for message in messages:
                if message["role"] == "tool" and previous == "tool":
                    turns[-1] = str(message.get("name", "other"))
                elif message["role"] == "tool":
                    turns.append(str(message.get("name", "other")))
                previous = message["role"]
                for call in message.get("tool_calls") or []:
                    function = call.get("function", {})
                    if function.get("name") not in known[row]:
                        self._record(
                            str(function.get("name")),
                            function.get("arguments") or {},
                            None,
                            "unknown tool",
                            0.0,
                        )
            self.names.append(turns)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                result = function(*args, **arguments)
            except BaseException as error:
                self._record(
                    name, arguments, None, f"{type(error).__name__}: {error}", time.perf_counter() - start
                )
                raise
            self._record(name, arguments, result, "", time.perf_counter() - start)
            return result

        return call

    def _timed_async(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            start = time.perf_counter()

            async def run() -> Any:
                try:
                    result = await coroutine
                except BaseException as error:
                    self._record(
                        name, arguments, None, f"{type(error).__name__}: {error}", time.perf_counter() - start
                    )
                    raise
                self._record(name, arguments, result, "", time.perf_counter() - start)
                return result

            try:
                coroutine = function(*args, **arguments)  # bad arguments raise here, as they do without us
            except BaseException as error:
                self._record(
                    name, arguments, None, f"{type(error).__name__}: {error}", time.perf_counter() - start
                )
                raise
            return run()

        return call

    def _record(
        self, name: str, arguments: Mapping[str, Any], result: Any, error: str, seconds: float
    ) -> None:
        with self.run.isolated("record tool call"):
            size = 0 if result is None else len(str(result))
            self.run.tool_call(ToolCall(name, dict(arguments), size, error, seconds))
