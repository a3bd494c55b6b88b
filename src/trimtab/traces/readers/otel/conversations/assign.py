"""Which conversation of a trace a span goes on with: sub-agents, judges and runs side by side are conversations of their own.

A request goes on with the conversation in whose tool's run it stands and whose answers or results it repeats, or whose first message it
begins with. What repeats nothing goes on only where it brings results alone, or where its span (or its agent's) names the
conversation and it has the same system prompt and an agent of the same name as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.overlap import Key, key_of
from trimtab.traces.readers.otel.conversations.conversation import Index, Route, systems_in, told_in
from trimtab.traces.readers.otel.conversations.pending_calls import is_call_of, place_of
from trimtab.traces.readers.otel.conversations.scope import Cells, Place, agent_name
from trimtab.traces.readers.otel.conversations.state import Talk
from trimtab.traces.readers.otel.messages import parsed
from trimtab.traces.readers.otel.span import Span
from trimtab.traces.readers.otel.tool_spans import call_id_of
from trimtab.typing import Json

_SYSTEM = ("system", "developer")
_LAST = 20
"""Of how many conversations of an agent a text is compared with the prompts."""


class Routes:
    """Gives each span to its conversation; `index` has them all, `of_span` by the trace and id of a span."""

    def __init__(self, spans: Sequence[Span], report: ReadReport) -> None:
        self.report = report
        self.cells = Cells(spans)
        self.index = Index()
        self.of_span: dict[tuple[str, str], Route] = {}

    def model(self, span: Span, given: list[Json]) -> None:
        """Give a model's span, which was asked `given`, to its conversation."""
        place = self.cells.place(span)
        asked = [key_of(message) for message in given]
        body = [key for key in asked if key[0] not in _SYSTEM]
        route = (
            _asked(span, place, body, systems_in(asked), self.index)
            if body
            else _silent(span, place, self.index)
        )
        if route and route.answered and body and all(key[0] == "user" for key in body):
            self.report.note("requests without the answers given before, read on in the same conversation")
        route = route or self._new(span, place)
        route.talk.model(span, given)
        route.named |= span.named
        self._learn(route, span, place)

    def tool(self, span: Span) -> None:
        """Give a tool's span to the conversation that called it."""
        place = self.cells.place(span)
        route = self._caller(span, place) or self._new(span, place)
        route.talk.tool(span)
        self._learn(route, span, place)

    def _caller(self, span: Span, place: Place) -> Route | None:
        """That has its call by id (runs side by side may count calls alike), whose model's span it stands under, that has an open call of its
        arguments or name, its agent's first; else the nearest."""
        called, asks = call_id_of(span), self.of_span.get((span.trace, span.parent))
        open = self.index.find("open", place.cell)[::-1]
        open.sort(key=lambda route: place.agent not in route.agents)
        tried = ((route, *place_of(span, route.talk.open)) for route in open)
        waiting = [(route, route.talk.open[at], sure) for route, at, sure in tried if at is not None]
        by_id = [(route, call) for route, call, _ in waiting if called and call.id == called]
        by_id.sort(key=lambda one: not is_call_of(span, one[1]))
        if by_id:
            return by_id[0][0]
        if asks and asks.cell == place.cell:
            return asks
        waiting.sort(key=lambda one: (bool(place.agent) and place.agent not in one[0].agents, not one[2]))
        found = [route for route, *_ in waiting] or _around(place, self.index)
        return next(itertools.chain(found, self.index.nearest(place)), None)

    def _new(self, span: Span, place: Place) -> Route:
        route = Route(Talk(self.report), place.cell, self.cells.depth(span))
        self.index.add(route)
        return route

    def _learn(self, route: Route, span: Span, place: Place) -> None:
        self.index.learn(route, span, place)
        self.of_span[span.trace, span.id] = route


def _asked(span: Span, place: Place, body: list[Key], systems: set[str], index: Index) -> Route | None:
    """The conversation whose messages a request repeats; else, that goes on by what it brings, or by its name."""
    told, users = told_in(body), [key for key in body if key[0] == "user"]
    near = index.find("agents", place.cell, place.agent)
    grown = [route for route in near[-_LAST:] if _is_grown(route, body)]
    found = [route for key in told for route in index.find("told", place.cell, key)]
    found += [*grown, *index.find("head", place.cell, None)]
    found += index.find("head", place.cell, users[0]) if users else []
    ranked = []
    for route in {route.place: route for route in found}.values():
        same, own = not systems.isdisjoint(route.systems), place.agent in route.agents
        other = bool(systems and route.systems) and not same
        shared = route.shared(told) + (route in grown)
        begun = route.begins(body, not other, own)
        if shared or begun or route.head is None:
            ranked.append((same, own, shared + begun, route.place))
    if ranked:
        return index.all[max(ranked)[-1]]
    if not users:
        results = {key[-1] for key in body if key[0] == "tool"}
        waiting = [route for route in index.nearest(place) if route.talk.open]
        by_id = [route for route in waiting if any(one.id in results for one in route.talk.open)]
        return next(itertools.chain(by_id, waiting, index.nearest(place)), None)
    if near and _names_last_response(span):
        return near[-1]
    here = list(index.nearest(place)) if span.named else []
    if len(body) > 1 and any(key in route.heard for route in here for key in users):
        return None  # a context that begins anew
    return next((r for r in here if r.named and _same_speaker(r, span, place, systems)), None)


def _same_speaker(route: Route, span: Span, place: Place, systems: set[str]) -> bool:
    """May a span that names a route's conversation go on with it? Not a judge's, nor another agent's of the same trace."""
    if systems and route.systems and systems.isdisjoint(route.systems):
        return False
    if all(trace != span.trace for trace, _ in route.names):
        return True
    level = any(len(agents) == len(place.agent) for agents in route.agents)
    return level and (span.trace, agent_name(span)) in route.names


def _silent(span: Span, place: Place, index: Index) -> Route | None:
    """The conversation of a span that does not say what was asked: its agent's. Under an agent in another, as GenAI's spans tell it, a new one."""
    near = index.find("agents", place.cell, place.agent)
    agent = next((one for one in span.above if one.kind == "agent"), None)
    if len(place.agent) > 1 and agent is not None and "gen_ai.operation.name" in agent.attributes:
        return near[-1] if near else None
    return next(index.nearest(place), None)


def _is_grown(route: Route, body: list[Key]) -> bool:
    """Is it one text (of a completion) that repeats the prompt, and after it the answer?"""
    if len(body) != 1 or body[0][0] != "user" or route.head is None or not route.head[1]:
        return False
    if not body[0][1].startswith(route.head[1]):
        return False
    said = next((key[1] for key in reversed(route.talk.keys) if key[0] == "assistant" and key[1]), "")
    return bool(said) and said in body[0][1][len(route.head[1]) :]


def _names_last_response(span: Span) -> bool:
    """Does the provider keep the history (Responses API)?"""
    requests = (parsed(span.attributes.get(name)) for name in ("input.value", "llm.invocation_parameters"))
    return any(isinstance(one, dict) and bool(one.get("previous_response_id")) for one in requests)


def _around(place: Place, index: Index) -> list[Route]:
    """Conversations of its agent and of those around it, the nearest first."""
    outer = (place.agent[i:] for i in range(len(place.agent) + 1))
    return [route for agents in outer for route in index.find("agents", place.cell, agents)[::-1]]
