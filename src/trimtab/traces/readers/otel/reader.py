"""Reader of OpenTelemetry spans (OTLP JSON): the GenAI conventions v1.41, OpenInference and Vercel's AI SDK.

A model span repeats the conversation so far, so only the end of its request is new. A tool span answers the
call of its id, else of its name and arguments, with the time it took. Where no model span has the call, the
tool span makes one. No convention has a reward: the score of an evaluation is taken where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.messages.responses_api import joined_items
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.otel.assignment import SpanAssigner
from trimtab.traces.readers.otel.conversation_state import ConversationState
from trimtab.traces.readers.otel.messages import request_of, response_of
from trimtab.traces.readers.otel.otlp_json import conversations_of
from trimtab.traces.readers.otel.span import Span
from trimtab.traces.readers.otel.tool_spans import tool_name

_REWARDS = ("reward", "score")
_NESTED = (
    "conversations within others (sub-agents, judges, runs side by side, contexts begun anew), "
    "episodes id/2, id/3, ..."
)


def read_otlp(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Yield an episode for each conversation (`gen_ai.conversation.id`, `session.id`), or for a trace without
    such an id.

    Conversations inside another one follow it as `id/2`, `id/3`, ...
    """
    for name, spans in conversations_of(records, report):
        assigner = SpanAssigner(spans, report)
        for span in _without_repeats(spans, report):
            if span.kind == "tool":
                assigner.add_tool_span(span)
            elif span.kind == "model":
                messages = request_of(span.attributes)
                request = joined_items([one for message in messages for one in unpacked(message, report)])
                assigner.add_model_span(span, request)
        owned = [(conversation.state, own) for conversation, own in assigner.owned_spans(spans)]
        if len(owned) > 1:
            report.note(_NESTED, len(owned) - 1)
        for i, (state, own) in enumerate(owned or [(ConversationState(report), spans)]):
            yield _episode(f"{name}/{i + 1}" if i else name, state, own)


def _episode(name: str, state: ConversationState, spans: list[Span]) -> Episode:
    episode = state.episode
    episode.id, episode.source = name, spans[0].source
    _set_reward(episode, [score for span in spans for score in span.scores], state.report)
    start, end = spans[0].start, max(span.end for span in spans)
    if start and end:
        episode.time, episode.duration_s = start / 1e9, (end - start) / 1e9
    episode.turns = turns_of(state.messages, state.report)
    return episode


def _without_repeats(spans: list[Span], report: ReadReport) -> list[Span]:
    """Return the spans without those of a framework that is instrumented together with its client.

    These are model spans around others that have answers, and a tool span inside one of its name.
    """
    around = {(s.trace, s.parent) for s in spans if s.kind == "model" and response_of(s.attributes)}
    tools = {s.key: tool_name(s) for s in spans if s.kind == "tool" and s.id}
    num_models = Counter(one.key for s in spans if s.kind == "model" for one in s.above)
    fresh = [
        span
        for span in spans
        if not (span.kind == "model" and span.id and span.key in around)
        and not (
            span.kind == "tool"
            and span.parent != span.id
            and tools.get((span.trace, span.parent)) == tool_name(span)
            and num_models[span.trace, span.parent] == num_models[span.key]  # else a call of a sub-agent
        )
    ]
    if len(fresh) < len(spans):
        report.note("spans of a model or tool that another span repeats, left out", len(spans) - len(fresh))
    return fresh


def _set_reward(episode: Episode, scores: Iterable[tuple[str, float]], report: ReadReport) -> None:
    """Set the parts of the reward, the last score of each name, and the reward.

    The reward is the part called reward or score, case aside, or the only part.
    """
    parts = dict(scores)
    episode.reward_parts = parts
    named = [score for wanted in _REWARDS for name, score in parts.items() if name.lower() == wanted]
    if named or len(parts) == 1:
        episode.reward = [*named, *parts.values()][0]
    elif parts:
        names = ", ".join(sorted(parts))
        report.note(f"episodes with evaluations of several names ({names}), none reward or score: no reward")
