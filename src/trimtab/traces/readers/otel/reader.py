"""OpenTelemetry spans (OTLP JSON) to episodes: the GenAI conventions v1.41, OpenInference and Vercel's AI SDK.

A model's span repeats the conversation so far, so that only the end of what it was asked is new. A tool's span answers the call of its
id, else of its name and arguments, with the time it took; where no model span names the call, it is one. No convention has a reward: an
evaluation's score, where there is one, is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.messages.responses_api import joined_items
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.otel.conversation_metadata import owned
from trimtab.traces.readers.otel.conversations.assign import Routes
from trimtab.traces.readers.otel.conversations.state import Talk
from trimtab.traces.readers.otel.decode import conversations
from trimtab.traces.readers.otel.deduplicate import once
from trimtab.traces.readers.otel.evaluations import reward
from trimtab.traces.readers.otel.messages import asked
from trimtab.traces.readers.otel.span import Span


def read_otlp(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a conversation (`gen_ai.conversation.id`, `session.id`), or a trace that names none; see `traces.otlp`. Others that are
    within it (`traces.span_routes`) follow it as `id/2`, `id/3`, ..."""
    for name, spans in conversations(records, report):
        routes = Routes(spans, report)
        for span in once(spans, report):
            if span.kind == "tool":
                routes.tool(span)
            elif span.kind == "model":
                given = [one for message in asked(span.attributes) for one in unpacked(message, report)]
                routes.model(span, joined_items(given))
        found = owned(routes, spans)
        if len(found) > 1:
            report.note(
                "conversations within others (sub-agents, judges, runs side by side, contexts begun anew), episodes id/2, id/3, ...",
                len(found) - 1,
            )
        for i, (route, own) in enumerate(found or [(None, spans)]):
            yield _episode(f"{name}/{i + 1}" if i else name, route.talk if route else Talk(report), own)


def _episode(name: str, talk: Talk, spans: list[Span]) -> Episode:
    episode = talk.episode
    episode.id, episode.source = name, spans[0].source
    reward(episode, [score for span in spans for score in span.scores], talk.report)
    start, end = spans[0].start, max(span.end for span in spans)
    if start and end:
        episode.time, episode.duration_s = start / 1e9, (end - start) / 1e9
    episode.turns = turns_of(talk.messages, talk.report)
    return episode
