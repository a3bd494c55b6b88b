"""Checks of a target around a load test: it answers, survives, ends no process, waits not on purpose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from trimtab.catalog import bound
from trimtab.errors import ToolError
from trimtab.tools.executor import Executor
from trimtab.tools.extras import library
from trimtab.tools.stress.call_mix import CallMix
from trimtab.tools.stress.load_loops import LoadPoint
from trimtab.traces.core.plural import counted
from trimtab.traces.core.tool_call import ToolCall

_TRIALS = 5
_SLOW_TRIALS = 2


async def without_slow(
    executor: Executor, mix: CallMix, seed: int = 0, say: Callable[[str], None] | None = None
) -> CallMix:
    """Return the mix without tools that nobody asked for and whose lone call takes too long.

    Args:
        executor: Of the tools.
        mix: Its `unasked` tools are called alone, at most twice.
        seed: Of the arguments.
        say: Takes a line that this begins.

    Returns:
        The mix; the same one where no tool, or every tool, is slow.

    Example:
        mix = await without_slow(executor, generated_mix(executor.tools))
        mix.left_out
    """
    names = [name for name in mix.names if name in mix.unasked]
    if len(mix.names) < 2 or not names:
        return mix
    if say is not None:
        say(f"calling {counted(len(names), 'tool')} alone, to leave out those that wait for long")
    limit, choices, random = bound("stress_slow_call"), _by_tool(mix), Random(f"{seed}/alone")
    slow = []
    for name in names:
        answers = 0
        for _ in range(_SLOW_TRIALS):
            with library("anyio").move_on_after(limit) as scope:
                await executor.call(name, random.choice(choices[name]))
            answers += not scope.cancelled_caught
            if answers:
                break
        if not answers:
            slow.append(name)
    calls = [call for call in mix.calls if call[0] not in slow]
    return replace(mix, calls=calls, left_out=tuple(slow)) if slow and calls else mix


async def require_alive(executor: Executor, mix: CallMix, seed: int = 0, trials: int = _TRIALS) -> None:
    """ToolError where not one of a few calls of each tool is answered, or one ends the process."""
    failed: dict[str, ToolCall] = {}
    random = Random(f"{seed}/alive")
    for name, choices in _by_tool(mix).items():
        for _ in range(trials):
            call = (await executor.call(name, random.choice(choices))).call
            if not call.error:
                return
            if call.kind == "exit":
                raise ToolError(_ended(name, call.arguments, call.error))
            if call.blame == "infrastructure" or call.kind == "timeout":
                failed.setdefault("dead", call)
            else:
                failed["refused"] = call
            if call.kind == "timeout":
                break  # the same wait again would tell nothing new
    if "refused" in failed:
        call = failed["refused"]
        shown = f"{call.name} with {json.dumps(call.arguments)[:80]}: {one_line(call.error)}"
        advice = "; give real calls with --trace" if call.arguments else ""
        raise ToolError(f"no call was answered, as {shown}{advice}")
    raise ToolError(f"the target does not answer: {failed['dead'].name}: {one_line(failed['dead'].error)}")


def require_no_exit(point: LoadPoint) -> None:
    """ToolError where a call of a level ended the process: in training it would end the run."""
    for failure in point.failures.values():
        if failure.kind == "tool/exit":
            raise ToolError(_ended(failure.tool, failure.arguments, failure.error))


async def require_survived(executor: Executor, mix: CallMix, points: Mapping[int, LoadPoint]) -> None:
    """ToolError where a target that answered before does not answer any more."""
    try:
        await require_alive(executor, mix, trials=1)
    except ToolError as error:
        last = max(point.concurrency for point in points.values() if point.answered)
        answered = sum(point.answered for point in points.values())
        raise ToolError(
            f"the target died under the test, after {counted(answered, 'answered call')} and with up to "
            f"{counted(last, 'caller')}: {error}"
        ) from error


def too_slow(points: Mapping[int, LoadPoint], seconds: float) -> str:
    """No call was answered within the measured part of its level: why, and what to do."""
    slowest = max(point.latency.maximum for point in points.values())
    failed = sum((Counter(point.errors) for point in points.values()), Counter[str]())
    errors = "".join(f", {kind} {count}" for kind, count in failed.most_common(2))
    return (
        f"no call was answered within its level of {seconds:g} s (slowest call {slowest:.3g} s"
        f"{errors}); give longer levels with --seconds, or other tools with --tool"
    )


def one_line(text: str) -> str:
    """Return a text in one line of at most 200 characters.

    >>> one_line("a\\n  b")
    'a b'
    """
    return " ".join(text.split())[:200]


def _ended(name: str, arguments: Any, error: str) -> str:
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    return f"the tool {name}, called with {shown[:80]}, {one_line(error.removeprefix('exit: '))}"


def _by_tool(mix: CallMix) -> dict[str, list[Any]]:
    choices: dict[str, list[Any]] = {}
    for name, arguments in mix.calls:
        choices.setdefault(name, []).append(arguments)
    return choices
