"""What else is a conversation's: agents' spans, which give its times, and evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.traces.core.coerce import as_label
from trimtab.traces.readers.otel.conversations.assign import Routes
from trimtab.traces.readers.otel.conversations.conversation import Route
from trimtab.traces.readers.otel.span import Span


def owned(routes: Routes, spans: Iterable[Span]) -> list[tuple[Route, list[Span]]]:
    """Conversations, the root's first (none where no model or tool ran), each with its spans: those it was told by, and others by whose below them is or above.

    A span around several is the first one's; so is an evaluation that names none of them, by its place or by the id of a response.
    """
    ranked = sorted(routes.index.all, key=lambda route: (route.depth, _within(route, routes)))
    rank = {id(route): i for i, route in enumerate(ranked)}
    below: dict[tuple[str, str], int] = {}
    responses: dict[str, int] = {}
    for i, route in enumerate(ranked):
        for span in route.spans:
            for one in span.above:
                below.setdefault((one.trace, one.id), i)
            if made := _response(span):
                responses.setdefault(made, i)
    found: list[list[Span]] = [[] for _ in ranked]
    for span in spans if ranked else ():
        told = routes.of_span.get((span.trace, span.id))
        named = responses.get(_response(span)) if span.scores and told is None else None
        place = rank[id(told)] if told else _place(span, below, routes, rank) if named is None else named
        found[place].append(span)
    return list(zip(ranked, found, strict=True))


def _place(span: Span, below: dict[tuple[str, str], int], routes: Routes, rank: dict[int, int]) -> int:
    line: Sequence[Span] = (span, *span.above)
    for one in line:
        told = routes.of_span.get((one.trace, one.id))
        if told is not None:
            return rank[id(told)]
        if (place := below.get((one.trace, one.id))) is not None:
            return place
    return 0


def _within(route: Route, routes: Routes) -> bool:
    """Is it of an agent inside another conversation's agent, as a guardrail that is asked first?"""
    agents = min(route.agents, key=len)
    outer = (agents[i:] for i in range(1, len(agents)))
    return any(other is not route for one in outer for other in routes.index.find("agents", route.cell, one))


def _response(span: Span) -> str:
    return as_label(span.attributes.get("gen_ai.response.id")) or ""
