"""Where a span stands: inside which tool's run, and of which agent. A sub-agent, or a model that a tool asks, is no part of the talk around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.traces.core.coerce import as_label
from trimtab.traces.readers.otel.span import Span

Cell = tuple[str, str] | None


class Place(NamedTuple):
    """`cell`: trace and span id of the tool it runs in, None outside of all. `agent`: ids of the agents it is under in there, nearest first."""

    cell: Cell
    agent: tuple[str, ...]


class Cells:
    """Places of spans. Only tools under which a model was asked make cells, and not one that all models are under: that is the run itself."""

    def __init__(self, spans: Iterable[Span]) -> None:
        over = [
            frozenset(_key(one) for one in span.above if one.kind == "tool")
            for span in spans
            if span.kind == "model"
        ]
        around_all = frozenset.intersection(*over) if over else frozenset()
        self._tools = frozenset().union(*over) - around_all

    def place(self, span: Span) -> Place:
        """Where it stands."""
        agents: list[str] = []
        for one in span.above:
            if one.kind == "tool" and _key(one) in self._tools:
                return Place(_key(one), tuple(agents))
            if one.kind == "agent":
                agents.append(one.id)
        return Place(None, tuple(agents))

    def depth(self, span: Span) -> int:
        """In how many cells it lies."""
        return sum(one.kind == "tool" and _key(one) in self._tools for one in span.above)


def agent_name(span: Span) -> str:
    """The name of its nearest agent; empty where it has none."""
    agent = next((one for one in span.above if one.kind == "agent"), None)
    return (as_label(agent.attributes.get("gen_ai.agent.name")) or agent.name) if agent else ""


def _key(span: Span) -> tuple[str, str]:
    return span.trace, span.id
