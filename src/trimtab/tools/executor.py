"""Executor of tool calls for rollouts: limits, timeouts, retries, validation, blame, one record a call.

async with Executor([tool(search, idempotent=True)]) as executor:
    result = await executor.call("search", {"query": "tofa"})
    result.text, result.call.blame
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol

from trimtab.errors import ToolError
from trimtab.tools.adaptive_limit import AdaptiveLimit, AdaptiveOptions
from trimtab.tools.circuit_breaker import BreakerOptions, CircuitBreaker
from trimtab.tools.extras import library
from trimtab.tools.failures import ToolFailure, classify, exit_failure
from trimtab.tools.limits import Limiter
from trimtab.tools.retries import Progress, RetryOptions, may_retry, try_again
from trimtab.tools.tool_definition import Arguments, Tool, ToolResult, clipped, result_text, validator
from trimtab.traces.core.tool_call import ToolCall

_YIELD_EVERY = 16


class Source(Protocol):
    """What brings tools and must be opened first: an MCP server, an HTTP service."""

    async def open(self, stack: AsyncExitStack) -> Iterable[Tool]:
        """Connect, put what closes it on the stack, and return the tools. ToolError for a dead one."""


@dataclass(frozen=True)
class ExecutorOptions:
    """Settings of an executor; defaults are not calibrated."""

    limit: int = 1024  # calls at a time, of all tools together
    target_limits: Mapping[str, int] = field(default_factory=dict)  # target -> calls at a time
    adaptive: AdaptiveOptions = field(default_factory=AdaptiveOptions)
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    cache_size: int = 10_000  # answers kept a tool


class _Target:
    """What tools of one target share."""

    __slots__ = ("adaptive", "breaker", "limiter")

    def __init__(self, options: ExecutorOptions, limit: int | None, adaptive: bool) -> None:
        self.breaker = CircuitBreaker(options.breaker)
        self.limiter = Limiter(limit) if limit else Limiter(options.adaptive.initial) if adaptive else None
        self.adaptive = (
            AdaptiveLimit(self.limiter, options.adaptive) if adaptive and not limit and self.limiter else None
        )


class _Lane:
    """A tool with everything its calls need."""

    __slots__ = ("adaptive", "breaker", "cache", "limiters", "tool", "validator")

    def __init__(self, tool: Tool, target: _Target, everything: Limiter) -> None:
        self.tool, self.breaker, self.adaptive = tool, target.breaker, target.adaptive
        own = Limiter(tool.limit) if tool.limit else None
        self.limiters = tuple(one for one in (own, target.limiter, everything) if one is not None)
        self.validator = validator(tool)
        self.cache: OrderedDict[str, Any] | None = OrderedDict() if tool.cache else None


class Executor:
    """Runs tool calls of many episodes at a time, in one event loop; `async with` opens its sources.

    `on_call` gets every `ToolCall`; `run.tool_call` of a trimtab run feeds its tool health. `counts` has the
    calls by (tool, blame); a success has blame "".
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        sources: Iterable[Source] = (),
        options: ExecutorOptions | None = None,
        on_call: Callable[[ToolCall], None] | None = None,
    ) -> None:
        self.options, self.on_call = options or ExecutorOptions(), on_call
        self.counts: Counter[tuple[str, str]] = Counter()
        self._everything = Limiter(self.options.limit)
        self._lanes: dict[str, _Lane] = {}
        self._targets: dict[str, _Target] = {}
        self._sources, self._stack = list(sources), AsyncExitStack()
        self._move_on_after = library("anyio").move_on_after
        self._checkpoint = library("anyio.lowlevel").checkpoint
        self._unyielded = 0
        for one in tools:
            self.add(one)

    @property
    def tools(self) -> list[Tool]:
        """The tools, in the order they came."""
        return [lane.tool for lane in self._lanes.values()]

    def add(self, one: Tool) -> None:
        """Add a tool. ToolError for a name that is taken or a malformed schema."""
        if one.name in self._lanes:
            raise ToolError(f"two tools are called {one.name}; rename one, or give the MCP server a prefix")
        key = one.target or f"tool {one.name}"
        if key not in self._targets:
            limit = self.options.target_limits.get(key)
            self._targets[key] = _Target(self.options, limit, one.adaptive)
        self._lanes[one.name] = _Lane(one, self._targets[key], self._everything)

    def limit_of(self, name: str) -> int:
        """Calls that the target of a tool may have at a time now; the global limit where it has none."""
        return min(limiter.limit for limiter in self._lanes[name].limiters)

    async def __aenter__(self) -> Executor:
        await self._stack.__aenter__()
        try:
            for source in self._sources:
                for one in await source.open(self._stack):
                    self.add(one)
        except ToolError:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):  # a task group of a source would wrap it in a group
            await self._stack.aclose()
        else:
            await self._stack.__aexit__(kind, error, trace)

    async def call(
        self, name: str, arguments: Any = None, *, episode_id: int = -1, step: int = -1
    ) -> ToolResult:
        """Run one call to its end; a failure is a result too, only cancellation is raised.

        Args:
            name: The tool's, as the model gave it.
            arguments: As the model gave them.
            episode_id: Episode that called, for the record.
            step: Optimizer step, for the record.

        Returns:
            Value, text for the model, and the `ToolCall` with its blame.
        """
        start = perf_counter()
        ids = (step, episode_id)
        lane = self._lanes.get(name)
        passed = {} if arguments is None else arguments
        if lane is None:
            failure = ToolFailure("policy", "unknown_tool", f"unknown tool: {str(name)[:80]}")
            return self._failed(str(name), passed, failure, start, Progress(), ids)
        if lane.validator is not None and not lane.validator.is_valid(passed):
            text = next(lane.validator.iter_errors(passed)).message[:500]
            failure = ToolFailure("policy", "bad_arguments", f"bad arguments: {text}")
            return self._failed(name, passed, failure, start, Progress(), ids)
        key = ""
        if lane.cache is not None:
            key = json.dumps(passed, sort_keys=True, default=str)
            if key in lane.cache:
                lane.cache.move_to_end(key)
                return self._answered(lane, passed, lane.cache[key], start, None, ids)
        self._unyielded += 1
        if self._unyielded >= _YIELD_EVERY:  # or tools that never wait would starve the loop and its timers
            self._unyielded = 0
            await self._checkpoint()
        progress, arrived = Progress(), False
        try:
            try:
                value = await self._attempt(lane, passed, progress)
            except ToolFailure as failure:
                if not may_retry(failure, lane.tool.idempotent, progress, self.options.retry):
                    raise
                value = await try_again(
                    failure, lambda: self._attempt(lane, passed, progress), lane.tool.idempotent, progress,
                    self.options.retry,
                )  # fmt: skip
            arrived = True
        except ToolFailure as failure:
            arrived = True
            return self._failed(name, passed, failure, start, progress, ids)
        finally:
            if not arrived:
                self._cancelled(name, passed, start, progress, ids)
        if lane.cache is not None:
            lane.cache[key] = value
            if len(lane.cache) > self.options.cache_size:
                lane.cache.popitem(last=False)
        return self._answered(lane, passed, value, start, progress, ids)

    async def _attempt(self, lane: _Lane, arguments: Arguments, progress: Progress) -> Any:
        """Wait for the limits and ask the tool once. Raises ToolFailure and nothing else."""
        breaker = lane.breaker
        if breaker.is_open and (wait := breaker.wait_s(perf_counter())):
            text = f"{lane.tool.target or lane.tool.name} failed too often; asked again in {wait:.1f} s"
            raise ToolFailure("infrastructure", "circuit_open", text, retry_after_s=wait, sent=False)
        taken = 0
        try:
            for limiter in lane.limiters:
                if not limiter.try_acquire():
                    before = perf_counter()
                    try:
                        await limiter.acquire()
                    finally:
                        progress.queued_s += perf_counter() - before
                taken += 1
            progress.attempts += 1
            return await self._ask(lane, arguments)
        finally:
            for limiter in lane.limiters[:taken]:
                limiter.release()

    async def _ask(self, lane: _Lane, arguments: Arguments) -> Any:
        tool, adaptive, breaker = lane.tool, lane.adaptive, lane.breaker
        start, failure, value = perf_counter(), None, None
        answered = False
        try:
            with self._move_on_after(tool.timeout_s) as scope:
                value = await tool.run(arguments)
            if scope.cancelled_caught:
                failure = ToolFailure("tool", "timeout", f"no answer in {tool.timeout_s:g} s")
            elif tool.check_result is not None and (problem := tool.check_result(arguments, value)):
                failure = ToolFailure("infrastructure", "corrupt", f"unusable result: {problem}")
            answered = True
        except Exception as error:
            failure = classify(error)
            answered = True
        except SystemExit as error:
            failure = exit_failure(error)
            answered = True
        finally:
            if not answered:
                breaker.abandoned()
        end = perf_counter()
        if adaptive is not None:
            refused = failure is not None and failure.retry_after_s > 0
            congested = failure is not None and failure.congested
            adaptive.done(start, end, congested=congested, refused=refused)
        if failure is None:
            if breaker.succeeded() and adaptive is not None:
                adaptive.restart(end)
            return value
        if failure.blame == "infrastructure":
            breaker.failed(end)
        else:
            breaker.succeeded()
        raise failure

    def _answered(
        self, lane: _Lane, arguments: Arguments, value: Any, start: float, progress: Progress | None,
        ids: tuple[int, int],
    ) -> ToolResult:  # fmt: skip
        text = result_text(value)
        queued = progress.queued_s if progress else 0.0
        call = ToolCall(
            lane.tool.name, arguments, len(text), "", perf_counter() - start - queued, *ids, "", "",
            progress.attempts if progress else 0, queued, progress is None,
        )  # fmt: skip
        self._record(call)
        return ToolResult(value, clipped(text, lane.tool.max_result_chars), call)

    def _failed(
        self, name: str, arguments: Any, failure: ToolFailure, start: float, progress: Progress,
        ids: tuple[int, int],
    ) -> ToolResult:  # fmt: skip
        text = f"error: {str(failure)[:2000] or failure.kind}"
        call = ToolCall(
            name, arguments if isinstance(arguments, dict) else {}, len(text),
            f"{failure.kind}: {failure}"[:500], perf_counter() - start - progress.queued_s, *ids,
            failure.blame, failure.kind, progress.attempts, progress.queued_s,
        )  # fmt: skip
        self._record(call)
        return ToolResult(None, text, call)

    def _cancelled(
        self, name: str, arguments: Arguments, start: float, progress: Progress, ids: tuple[int, int]
    ) -> None:
        seconds = perf_counter() - start - progress.queued_s
        self._record(
            ToolCall(name, arguments, 0, "cancelled", seconds, *ids, "", "cancelled", progress.attempts)
        )

    def _record(self, call: ToolCall) -> None:
        self.counts[call.name if call.name in self._lanes else "unknown", call.blame] += 1
        if self.on_call is not None:
            self.on_call(call)
