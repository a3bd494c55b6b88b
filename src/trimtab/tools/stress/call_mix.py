"""Which calls a stress test makes: those of logged episodes, or arguments drawn from the tools' schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from trimtab.errors import ToolError
from trimtab.tools.stress.schema_values import draw_arguments
from trimtab.tools.tool_definition import Tool

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class CallMix:
    """Calls to draw from, with what the draws rest on."""

    calls: Sequence[Call]
    source: str
    calls_per_rollout: float = float("nan")  # mean of the episodes; NaN where nobody knows
    drawn: bool = False  # were the arguments drawn from schemas?
    unasked: frozenset[str] = frozenset()  # tools of a server that nobody named
    left_out: tuple[str, ...] = ()  # of them, those whose lone call took too long

    def __post_init__(self) -> None:
        if not self.calls:
            raise ToolError(f"{self.source}: there are no calls to make")

    @property
    def names(self) -> list[str]:
        """Tools that are called, in the order of their first call."""
        return list(dict.fromkeys(name for name, _ in self.calls))

    def row(self) -> dict[str, Any]:
        """What the calls rest on, as a JSON object."""
        return {
            "source": self.source, "tools": self.names, "drawn": self.drawn,
            "left_out": list(self.left_out),
        }  # fmt: skip

    def draw(self, random: Random) -> Call:
        """One call."""
        return self.calls[random.randrange(len(self.calls))]


def generated_mix(
    tools: Iterable[Tool], *, names: Sequence[str] = (), seed: int = 0, each: int = 64
) -> CallMix:
    """Return calls drawn from schemas.

    Args:
        tools: The target's tools.
        names: Those to call. By default all, but of an MCP server only those it declares idempotent or
            read-only: random arguments are no good reason to delete something.
        seed: Of the draws.
        each: Calls drawn a tool.

    Returns:
        The mix, every tool with the same weight.

    Raises:
        ToolError: A name that the target lacks, or nothing that may be called.

    Example:
        >>> from trimtab.tools import tool
        >>> def stock(item: str) -> int: ...
        >>> generated_mix([tool(stock)]).names
        ['stock']
    """
    known = {one.name: one for one in tools}
    for name in names:
        if name not in known:
            raise ToolError(f"the target has no tool {name}; it has {', '.join(list(known)[:20])}")
    chosen = [known[name] for name in names] or [
        one for one in known.values() if len(known) == 1 or _safe(one)
    ]
    if not chosen:
        raise ToolError("no tool says that it only reads; name those to call with --tool, or give a --trace")
    random = Random(seed)
    calls = [(one.name, draw_arguments(one.schema, random)) for one in chosen for _ in range(each)]
    unasked = frozenset(one.name for one in chosen if one.adaptive and not names)
    return CallMix(calls, "generated from schemas", drawn=True, unasked=unasked)


def trace_mix(path: str | Path, tools: Iterable[Tool], *, names: Sequence[str] = ()) -> CallMix:
    """Return the calls of logged episodes, in the formats that `trimtab traces` reads.

    Args:
        path: Log of episodes.
        tools: The target's tools; calls of others are left out.
        names: Only these tools.

    Returns:
        The mix, with the mean number of calls of an episode.

    Raises:
        ToolError: The log has no call of these tools. TraceError: it cannot be read.

    Example:
        mix = trace_mix("logs/episodes.jsonl", executor.tools)
        mix.calls_per_rollout
    """
    from trimtab.traces.read import read_episodes

    episodes, _ = read_episodes([path])
    known = set(names) or {one.name for one in tools}
    calls: list[Call] = [
        (call.name, call.arguments if isinstance(call.arguments, dict) else {})
        for episode in episodes
        for call in episode.calls
        if call.name in known
    ]
    if not calls:
        raise ToolError(f"{path} has no call of {', '.join(sorted(known)[:10])}")
    return CallMix(calls, f"{len(calls)} calls of {path}", len(calls) / len(episodes))


def _safe(one: Tool) -> bool:
    """May it be called with random arguments? Yes if the user wrote it, or it says it only reads."""
    return one.idempotent or not one.adaptive
