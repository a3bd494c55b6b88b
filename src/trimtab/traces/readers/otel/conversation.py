"""The conversations of a trace so far, and an index by what they contain. A trace may hold thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trimtab.traces.core.coerce import as_label
from trimtab.traces.messages.overlap import Key
from trimtab.traces.readers.otel.conversation_state import ConversationState
from trimtab.traces.readers.otel.span import Span, SpanId

SYSTEM_ROLES = ("system", "developer")
Agents = tuple[str, ...]


class Position(NamedTuple):
    """Where a span stands in its trace."""

    scope: SpanId | None
    """The tool it runs in, None outside of all tools."""
    agents: Agents
    """Ids of the agents above it inside the scope, nearest first."""


class Scopes:
    """Scopes of the spans of a trace: a sub-agent, or a model that a tool calls, has a conversation of its
    own.

    Only tools above a model span are scopes. A tool above all model spans is the run itself, and not a scope.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        models = [span for span in spans if span.kind == "model"]
        above = [frozenset(one.key for one in span.above if one.kind == "tool") for span in models]
        above_all = frozenset.intersection(*above) if above else frozenset()
        self._tools = frozenset().union(*above) - above_all

    def position(self, span: Span) -> Position:
        """Return the scope and the agents of a span."""
        agents: list[str] = []
        for one in span.above:
            if one.kind == "tool" and one.key in self._tools:
                return Position(one.key, tuple(agents))
            if one.kind == "agent":
                agents.append(one.id)
        return Position(None, tuple(agents))

    def depth(self, span: Span) -> int:
        """Return the number of scopes around a span."""
        return sum(one.kind == "tool" and one.key in self._tools for one in span.above)


@dataclass(eq=False)
class Conversation:
    """A conversation, its spans, and what identifies a further span as part of it."""

    state: ConversationState
    scope: SpanId | None
    depth: int
    spans: list[Span] = field(default_factory=list)
    agents: set[Agents] = field(default_factory=set)
    """Agents above its spans; `agent_names` has the name of the nearest with the trace."""
    agent_names: set[tuple[str, str]] = field(default_factory=set)
    system_prompts: set[str] = field(default_factory=set)
    first_user: Key | None = None
    user_messages: set[Key] = field(default_factory=set)
    assistant_keys: set[Key] = field(default_factory=set)
    """Assistant messages and tool results seen so far."""
    generated_keys: set[Key] = field(default_factory=set)
    """Those of `assistant_keys` that were not part of the first request."""
    num_answers: int = 0
    answered: bool = False
    has_id: bool = False
    """A span of it names the id of the conversation."""
    num_indexed: int = 0
    index: int = 0

    def update(self, span: Span, position: Position) -> set[Key]:
        """Take in what its state has gained from `span`.

        Return the new assistant messages and tool results.
        """
        new, generated = self.state.keys[self.num_indexed :], self.state.keys[self.state.num_requested :]
        self.num_indexed += len(new)
        self.spans.append(span)
        self.agents.add(position.agents)
        self.agent_names.add((span.trace, agent_name(span)))
        self.system_prompts |= system_prompts(new)
        keys = assistant_keys(new)
        self.assistant_keys |= keys
        self.generated_keys |= keys if self.answered else assistant_keys(generated)
        self.answered |= any(key[0] == "assistant" for key in generated)
        self.num_answers += sum(key[0] == "assistant" for key in new)
        users = [key for key in new if key[0] == "user"]
        self.first_user = self.first_user or next(iter(users), None)
        self.user_messages.update(users)
        return keys

    def num_shared(self, keys: set[Key]) -> int:
        """Return how many of `keys` are its own.

        Few-shot examples of the first request are not, once the model has answered: other conversations have
        them too.
        """
        return len(keys & (self.generated_keys if self.answered else self.assistant_keys))

    def is_history_of(self, body: list[Key], same_system: bool, same_agent: bool) -> bool:
        """Is it the history of a request that repeats none of its answers?

        Both begin with one user message. Once it has an answer, `body` must have all its user messages as
        well, and either other words for each answer or the same agent and system prompt.
        """
        users = [key for key in body if key[0] == "user"]
        if users[:1] != [self.first_user] or not self.answered:
            return users[:1] == [self.first_user]
        reworded = sum(key[0] == "assistant" for key in body) >= self.num_answers
        return self.user_messages.issubset(users) and (reworded or (same_agent and same_system))


class ConversationIndex:
    """Conversations by what they contain."""

    def __init__(self) -> None:
        self.all: list[Conversation] = []
        self._buckets: dict[Any, dict[int, Conversation]] = {}

    def find(self, *bucket: Any) -> list[Conversation]:
        """Return the conversations of a bucket, oldest first.

        The buckets are `"scope", scope`, `"agents", scope, agents`, `"assistant", scope, key`, `"first_user",
        scope, key` and `"open", scope` (calls without an answer).
        """
        bucketed = self._buckets.get(bucket, {})
        return [bucketed[i] for i in sorted(bucketed)]

    def nearest(self, position: Position) -> Iterator[Conversation]:
        """Yield the conversations of a scope: those of the same agents first, of these the latest first."""
        yield from reversed(self.find("agents", *position))
        in_scope = reversed(self.find("scope", position.scope))
        yield from (one for one in in_scope if position.agents not in one.agents)

    def add(self, conversation: Conversation) -> None:
        """Add a new conversation."""
        conversation.index = len(self.all)
        self.all.append(conversation)
        self._put(conversation, "scope", conversation.scope)
        self._put(conversation, "first_user", conversation.scope, None)

    def update(self, conversation: Conversation, span: Span, position: Position) -> None:
        """Take in what the state of a conversation has gained from `span`."""
        scope, was_headless = conversation.scope, conversation.first_user is None
        for key in conversation.update(span, position):
            self._put(conversation, "assistant", scope, key)
        self._put(conversation, "agents", scope, position.agents)
        if was_headless and conversation.first_user is not None:
            self._buckets["first_user", scope, None].pop(conversation.index)
            self._put(conversation, "first_user", scope, conversation.first_user)
        if conversation.state.open:
            self._put(conversation, "open", scope)
        else:
            self._buckets.get(("open", scope), {}).pop(conversation.index, None)

    def _put(self, conversation: Conversation, *bucket: Any) -> None:
        self._buckets.setdefault(bucket, {})[conversation.index] = conversation


def agent_name(span: Span) -> str:
    """Return the name of the nearest agent of a span. Empty where it has none."""
    agent = span.agent
    return (as_label(agent.attributes.get("gen_ai.agent.name")) or agent.name) if agent else ""


def system_prompts(keys: Iterable[Key]) -> set[str]:
    """Return the system prompts without their numbers, as many contain the time."""
    return {re.sub(r"\d+", "0", key[1]) for key in keys if key[0] in SYSTEM_ROLES and key[1]}


def assistant_keys(keys: Iterable[Key]) -> set[Key]:
    """Return assistant messages that are not empty, and tool results with the id of their call."""
    answers = (key for key in keys if key[0] == "assistant" and any(key[1:]))
    return {*answers, *(key for key in keys if key[0] == "tool" and len(key) == 2)}
