"""Assigns each span of a trace to its conversation: sub-agents, judges and parallel runs have conversations
of their own.

A request continues a conversation of its scope whose answers or results it repeats, or with whose first
message it begins. A request that repeats nothing continues one only where it brings results alone, or where
its span (or its agent's) names the conversation and it has the same system prompt and an agent of the same
name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from trimtab.traces.core.coerce import as_label, as_object
from trimtab.traces.core.json_text import json_or_text
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.overlap import Key, key_of
from trimtab.traces.readers.otel.conversation import (
    SYSTEM_ROLES,
    Conversation,
    ConversationIndex,
    Position,
    Scopes,
    agent_name,
    assistant_keys,
    system_prompts,
)
from trimtab.traces.readers.otel.conversation_state import ConversationState
from trimtab.traces.readers.otel.span import Span, SpanId
from trimtab.traces.readers.otel.tool_spans import call_id_of, is_call_of, match_call
from trimtab.typing import Json

_MAX_COMPARED = 20
"""Latest conversations of an agent whose prompts are compared with a text."""


class SpanAssigner:
    """Assigns model and tool spans, in order of their start, to conversations."""

    def __init__(self, spans: Sequence[Span], report: ReadReport) -> None:
        self.report = report
        self.scopes = Scopes(spans)
        self.index = ConversationIndex()
        self.by_span: dict[SpanId, Conversation] = {}

    def add_model_span(self, span: Span, request: list[Json]) -> None:
        """Add a model span, which was sent `request`, to its conversation."""
        position = self.scopes.position(span)
        keys = [key_of(message) for message in request]
        body = [key for key in keys if key[0] not in SYSTEM_ROLES]
        if body:
            conversation = _requested(span, position, body, system_prompts(keys), self.index)
        else:
            conversation = _without_request(span, position, self.index)
        if conversation and conversation.answered and body and all(key[0] == "user" for key in body):
            self.report.note("requests without the answers given before, read on in the same conversation")
        conversation = conversation or self._new(span, position)
        conversation.state.add_model_span(span, request)
        conversation.has_id |= span.has_conversation_id
        self._update(conversation, span, position)

    def add_tool_span(self, span: Span) -> None:
        """Add a tool span to the conversation that called the tool."""
        position = self.scopes.position(span)
        conversation = self._caller(span, position) or self._new(span, position)
        conversation.state.add_tool_span(span)
        self._update(conversation, span, position)

    def owned_spans(self, spans: Iterable[Span]) -> list[tuple[Conversation, list[Span]]]:
        """Return the conversations, that of the root first, each with its spans.

        Empty where no model or tool ran.

        A span around several conversations belongs to the first of them. So does an evaluation that names
        none of them by its position or by the id of a response.
        """
        ranked = sorted(self.index.all, key=lambda one: (one.depth, self._is_nested(one)))
        if not ranked:
            return []
        rank = {id(one): i for i, one in enumerate(ranked)}
        below: dict[SpanId, int] = {}
        responses: dict[str, int] = {}
        for i, conversation in enumerate(ranked):
            for span in conversation.spans:
                for one in span.above:
                    below.setdefault(one.key, i)
                if response := _response_id(span):
                    responses.setdefault(response, i)
        owned: list[list[Span]] = [[] for _ in ranked]
        for span in spans:
            assigned = self.by_span.get(span.key)
            if assigned is None and span.scores and (response := _response_id(span)) in responses:
                owned[responses[response]].append(span)
                continue
            for one in (span, *span.above):
                if one.key in self.by_span or one.key in below:
                    key = one.key
                    owned[rank[id(self.by_span[key])] if key in self.by_span else below[key]].append(span)
                    break
            else:
                owned[0].append(span)
        return list(zip(ranked, owned, strict=True))

    def _is_nested(self, conversation: Conversation) -> bool:
        """Is it of an agent inside the agent of another conversation, as a guardrail that is called first?"""
        agents = min(conversation.agents, key=len)
        outer = (agents[i:] for i in range(1, len(agents)))
        others = (one for around in outer for one in self.index.find("agents", conversation.scope, around))
        return any(one is not conversation for one in others)

    def _caller(self, span: Span, position: Position) -> Conversation | None:
        """Return the conversation that called the tool.

        It is the one with the call of its id (parallel runs may number calls alike), else the one whose model
        span is its parent, else one with an open call of its arguments or name, its agent's first, else the
        nearest.
        """
        call_id, parent = call_id_of(span), self.by_span.get((span.trace, span.parent))
        candidates = self.index.find("open", position.scope)[::-1]
        candidates.sort(key=lambda one: position.agents not in one.agents)
        matches = ((one, *match_call(span, one.state.open)) for one in candidates)
        waiting = [(one, one.state.open[i], certain) for one, i, certain in matches if i is not None]
        by_id = [(one, call) for one, call, _ in waiting if call_id and call.id == call_id]
        if by_id:
            return min(by_id, key=lambda match: not is_call_of(span, match[1]))[0]
        if parent and parent.scope == position.scope:
            return parent
        waiting.sort(
            key=lambda match: (bool(position.agents) and position.agents not in match[0].agents, not match[2])
        )
        callers = [one for one, *_ in waiting] or _around(position, self.index)
        return next(itertools.chain(callers, self.index.nearest(position)), None)

    def _new(self, span: Span, position: Position) -> Conversation:
        state = ConversationState(self.report)
        conversation = Conversation(state, position.scope, self.scopes.depth(span))
        self.index.add(conversation)
        return conversation

    def _update(self, conversation: Conversation, span: Span, position: Position) -> None:
        self.index.update(conversation, span, position)
        self.by_span[span.key] = conversation


def _requested(
    span: Span, position: Position, body: list[Key], systems: set[str], index: ConversationIndex
) -> Conversation | None:
    """Return the conversation whose messages a request repeats, else the one it continues by its results or
    by its id."""
    keys, users = assistant_keys(body), [key for key in body if key[0] == "user"]
    scope, near = position.scope, index.find("agents", *position)
    repeated = [one for one in near[-_MAX_COMPARED:] if _repeats_as_text(one, body)]
    candidates = [one for key in keys for one in index.find("assistant", scope, key)]
    candidates += [*repeated, *index.find("first_user", scope, None)]
    candidates += index.find("first_user", scope, users[0]) if users else []
    ranked = []
    for one in {one.index: one for one in candidates}.values():
        same_system, same_agent = not systems.isdisjoint(one.system_prompts), position.agents in one.agents
        other_system = bool(systems and one.system_prompts) and not same_system
        num_shared = one.num_shared(keys) + (one in repeated)
        begun = one.is_history_of(body, not other_system, same_agent)
        if num_shared or begun or one.first_user is None:
            ranked.append((same_system, same_agent, num_shared + begun, one.index))
    if ranked:
        return index.all[max(ranked)[-1]]
    if not users:
        results = {key[-1] for key in body if key[0] == "tool"}
        waiting = [one for one in index.nearest(position) if one.state.open]
        by_id = [one for one in waiting if any(call.id in results for call in one.state.open)]
        return next(itertools.chain(by_id, waiting, index.nearest(position)), None)
    if near and _names_previous_response(span):
        return near[-1]
    named = list(index.nearest(position)) if span.has_conversation_id else []
    if len(body) > 1 and any(key in one.user_messages for one in named for key in users):
        return None  # a context that begins anew
    return next((one for one in named if one.has_id and _same_speaker(one, span, position, systems)), None)


def _same_speaker(conversation: Conversation, span: Span, position: Position, systems: set[str]) -> bool:
    """May a span that names a conversation continue it?

    A judge's may not, nor another agent's of the same trace.
    """
    if systems and conversation.system_prompts and systems.isdisjoint(conversation.system_prompts):
        return False
    if all(trace != span.trace for trace, _ in conversation.agent_names):
        return True
    same_level = any(len(agents) == len(position.agents) for agents in conversation.agents)
    return same_level and (span.trace, agent_name(span)) in conversation.agent_names


def _without_request(span: Span, position: Position, index: ConversationIndex) -> Conversation | None:
    """Return the conversation of a span that does not say what was requested: that of its agent.

    Under an agent within another, as GenAI spans show it, it is a new one.
    """
    near, agent = index.find("agents", *position), span.agent
    if len(position.agents) > 1 and agent is not None and "gen_ai.operation.name" in agent.attributes:
        return near[-1] if near else None
    return next(index.nearest(position), None)


def _repeats_as_text(conversation: Conversation, body: list[Key]) -> bool:
    """Is the request one text (of a completion) that repeats the prompt and then the answer?"""
    first = conversation.first_user
    if len(body) != 1 or body[0][0] != "user" or first is None or not first[1]:
        return False
    text = body[0][1]
    if not text.startswith(first[1]):
        return False
    answers = (key[1] for key in reversed(conversation.state.keys) if key[0] == "assistant" and key[1])
    answer = next(answers, "")
    return bool(answer) and answer in text[len(first[1]) :]


def _names_previous_response(span: Span) -> bool:
    """Does the provider store the history (Responses API)?"""
    texts = map(span.attributes.get, ("input.value", "llm.invocation_parameters"))
    return any(bool(as_object(json_or_text(one)).get("previous_response_id")) for one in texts)


def _around(position: Position, index: ConversationIndex) -> list[Conversation]:
    """Return the conversations of its agent and of those around it, the nearest first."""
    outer = (position.agents[i:] for i in range(len(position.agents) + 1))
    return [one for agents in outer for one in index.find("agents", position.scope, agents)[::-1]]


def _response_id(span: Span) -> str:
    return as_label(span.attributes.get("gen_ai.response.id")) or ""
