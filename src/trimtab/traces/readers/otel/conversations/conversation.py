"""A conversation among those of a trace, as far as its spans are read, and the places under which it is found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trimtab.traces.messages.overlap import Key
from trimtab.traces.readers.otel.conversations.scope import Place, agent_name
from trimtab.traces.readers.otel.conversations.state import Talk
from trimtab.traces.readers.otel.span import Span

_SYSTEM = ("system", "developer")


@dataclass(eq=False)
class Route:
    """A conversation: its `talk`, the `spans` of models and tools it was told by, and what tells whether another span goes on with it.

    `agents`, `names`: of the agents it was under; `systems`: its system prompts; `head`: its first user message; `heard`: all of them;
    `told`: answers, and results with the id of their call, of which the first request gave none of `own`; `place`: its number.
    """

    talk: Talk
    cell: Any
    depth: int
    spans: list[Span] = field(default_factory=list)
    agents: set[tuple[str, ...]] = field(default_factory=set)
    names: set[tuple[str, str]] = field(default_factory=set)
    systems: set[str] = field(default_factory=set)
    head: Key | None = None
    heard: set[Key] = field(default_factory=set)
    told: set[Key] = field(default_factory=set)
    own: set[Key] = field(default_factory=set)
    num_answers: int = 0
    answered: bool = False
    named: bool = False
    num_learnt: int = 0
    place: int = 0

    def learn(self, span: Span, place: Place) -> set[Key]:
        """Take in what its talk knows since `span` was taken; the answers and results among it."""
        keys, said = self.talk.keys[self.num_learnt :], self.talk.keys[self.talk.num_given :]
        self.num_learnt += len(keys)
        self.spans.append(span)
        self.agents.add(place.agent)
        self.names.add((span.trace, agent_name(span)))
        self.systems |= systems_in(keys)
        told = told_in(keys)
        self.told |= told
        self.own |= told if self.answered else told_in(said)
        self.answered |= any(key[0] == "assistant" for key in said)
        self.num_answers += sum(key[0] == "assistant" for key in keys)
        heard = [key for key in keys if key[0] == "user"]
        self.head = self.head or next(iter(heard), None)
        self.heard.update(heard)
        return told

    def shared(self, told: set[Key]) -> int:
        """How many of `told` are its own: examples that a first request gave are others' too, once the model has answered."""
        return len(told & (self.own if self.answered else self.told))

    def begins(self, body: list[Key], system: bool, own: bool) -> bool:
        """Is it the history of `body`, which repeats none of its answers? Where both begin with one user message: before its first answer;
        or where it lacks no user message of it, and has other words for each answer, or is asked again by its agent and system prompt."""
        users = [key for key in body if key[0] == "user"]
        if users[:1] != [self.head] or not self.answered:
            return users[:1] == [self.head]
        words = sum(key[0] == "assistant" for key in body) >= self.num_answers
        return self.heard.issubset(users) and (words or (own and system))


class Index:
    """Routes by what they have: a trace may hold thousands."""

    def __init__(self) -> None:
        self.all: list[Route] = []
        self._places: dict[Any, dict[int, Route]] = {}

    def find(self, *place: Any) -> list[Route]:
        """Those of a place, in the order of their coming: `"cell", cell`, `"agents", cell, agents`, `"told", cell, key`, `"head", cell, key`,
        `"open", cell` (calls without an answer)."""
        found = self._places.get(place, {})
        return [found[i] for i in sorted(found)]

    def nearest(self, place: Place) -> Iterator[Route]:
        """Those of a cell, its agent's first, of these the latest first."""
        near = self.find("agents", place.cell, place.agent)
        yield from reversed(near)
        yield from (
            route for route in reversed(self.find("cell", place.cell)) if place.agent not in route.agents
        )

    def add(self, route: Route) -> None:
        """A new one."""
        route.place = len(self.all)
        self.all.append(route)
        self._put(route, "cell", route.cell)
        self._put(route, "head", route.cell, None)

    def learn(self, route: Route, span: Span, place: Place) -> None:
        """Take in what its talk knows since `span` was taken."""
        cell, headless = route.cell, route.head is None
        for key in route.learn(span, place):
            self._put(route, "told", cell, key)
        self._put(route, "agents", cell, place.agent)
        if headless and route.head is not None:
            self._places["head", cell, None].pop(route.place)
            self._put(route, "head", cell, route.head)
        if route.talk.open:
            self._put(route, "open", cell)
        else:
            self._places.get(("open", cell), {}).pop(route.place, None)

    def _put(self, route: Route, *place: Any) -> None:
        self._places.setdefault(place, {})[route.place] = route


def systems_in(keys: Iterable[Key]) -> set[str]:
    """System prompts, numbers aside: many tell the time."""
    return {re.sub(r"\d+", "0", key[1]) for key in keys if key[0] in _SYSTEM and key[1]}


def told_in(keys: Iterable[Key]) -> set[Key]:
    """Answers that say something, and results with the id of their call."""
    return {key for key in keys if (key[0] == "assistant" and any(key[1:])) or (key[0] == "tool" and len(key) == 2)}  # fmt: skip
