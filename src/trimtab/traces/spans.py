"""OpenTelemetry spans (OTLP JSON) to episodes: the GenAI conventions v1.41 and OpenInference.

A model's span repeats the conversation so far, so that only the end of what it was asked is new. A tool's span answers the call of its
id, else of its name, with the time it took; where no model span names the call, it is one. No convention has a reward: an
evaluation's score, where there is one, is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.traces.blocks import unpacked
from trimtab.traces.episode import Episode
from trimtab.traces.history import key_of, num_known
from trimtab.traces.items import answer_of, joined_items
from trimtab.traces.otlp import Span, conversations, is_otlp
from trimtab.traces.reading import ReadReport, Record
from trimtab.traces.span_messages import (
    answered,
    asked,
    finish_reason,
    parsed,
    tools_given,
)
from trimtab.traces.span_repeats import once
from trimtab.traces.span_tools import arguments_of, call_id_of, result_of, schema_of, tool_name
from trimtab.traces.turns import turns_of
from trimtab.traces.values import as_int, as_label, as_text, first_of

__all__ = ["is_otlp", "read_otlp"]

Json = Mapping[str, Any]
_USED = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")


def read_otlp(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a conversation (`gen_ai.conversation.id`, `session.id`), or a trace that names none; see `traces.otlp`."""
    for name, spans in conversations(records, report):
        yield _Conversation(name, spans, report).episode


class _Conversation:
    """`messages` so far; `open`: calls among them that have no answer, as id and name; `called`: ids of all; `answers`: by the call's id."""

    def __init__(self, name: str, spans: list[Span], report: ReadReport) -> None:
        self.episode = Episode(id=name, source=spans[0].source)
        self.report = report
        self.messages: list[dict[str, Any]] = []
        self.keys: list[tuple[Any, ...]] = []
        self.open: list[tuple[str, str]] = []
        self.called: set[str] = set()
        self.told: set[tuple[Any, ...]] = set()
        self.answers: dict[str, dict[str, Any]] = {}
        self.fresh = True  # the next call without a message is of a new turn
        tokens = []
        for span in once(spans, report):
            if span.kind == "tool":
                self._tool(span)
            elif span.kind == "model":
                self._model(span)
                tokens.append(as_int(first_of(span.attributes, *_USED)))
        scores = [span.score for span in spans if span.score is not None]
        self.episode.reward = scores[-1] if scores else None
        known = [used for used in tokens if used is not None]
        self.episode.tokens = sum(known) if known else None
        start, end = spans[0].start, max(span.end for span in spans)
        if start and end:
            self.episode.time, self.episode.duration_s = start / 1e9, (end - start) / 1e9
        self.episode.turns = turns_of(self.messages, report)

    def _model(self, span: Span) -> None:
        attributes, episode = span.attributes, self.episode
        given = joined_items([one for message in asked(attributes) for one in unpacked(message, self.report)])
        given = [message for message in given if not self._retold(message)]
        for message in given:  # a tool's span without its result may have it here
            answer = self.answers.get(as_label(message.get("tool_call_id")) or "")
            if answer is not None and answer["content"] is None:
                answer["content"] = message.get("content")
        for message in given[num_known(self.keys, [key_of(m) for m in given], self.report) :]:
            self._add(dict(message))
        said = [one for message in answered(attributes) for one in unpacked(message, self.report)]
        if said:
            usage = {"usage": {"completion_tokens": first_of(attributes, *_USED)}}
            for message in answer_of(said):
                self._add(message | {"timestamp": span.start / 1e9 if span.start else None} | usage)
                usage = {}
        elif not span.error:
            self.report.note("spans of a model that keep no answer, no turns made of them")
        self.fresh = not said
        named = as_label(
            first_of(attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
        )
        episode.model = named or episode.model
        reason = finish_reason(attributes, said)
        episode.stop_reason = "error" if span.error and not said else reason or episode.stop_reason
        self._offered(tools_given(attributes))

    def _retold(self, message: Json) -> bool:
        """smolagents gives the model its calls and their results again as words, in roles of its own."""
        role = message.get("role")
        known = bool(self.called) and (role == "tool-call" or (role == "tool-response" and not self.open))
        if known and (key := key_of(message)) not in self.told:
            self.told.add(key)
            self.report.note("messages that tell a known call or result again (smolagents), left out")
        return known

    def _offered(self, tools: list[dict[str, Any]]) -> None:
        names = {_name(tool) for tool in self.episode.tools or []}
        if fresh := [tool for tool in tools if _name(tool) not in names]:
            self.episode.tools = [*(self.episode.tools or []), *fresh]

    def _add(self, message: dict[str, Any]) -> None:
        key = key_of(message)
        if message.get("role") == "tool" and not self._answers(message):
            return
        calls = message.get("tool_calls")
        made = [_id_and_name(call) for call in (calls if isinstance(calls, list) else ())]
        self.open += made
        self.called |= {called for called, _ in made}
        self.messages.append(message)
        self.keys.append(key)

    def _answers(self, message: dict[str, Any]) -> bool:
        """Is the result new? A tool's span, or an earlier input, may have answered its call. Some instrumentations give a call the id of
        its item, and its result the id of the call: such a result is the oldest open call's."""
        said = as_label(message.get("tool_call_id")) or ""
        place = next((i for i in reversed(range(len(self.open))) if self.open[i][0] == said), None)
        if place is None and said in self.answers:
            return False
        if place is None and said and said not in self.called:
            text = as_text(message.get("content"))
            if not self.open and any(as_text(a.get("content")) == text for a in self.answers.values()):
                return False
            if self.open:
                self.report.note("results whose id no call has, given to the oldest open call")
                place, message["tool_call_id"] = 0, self.open[0][0]
        self.answers[said] = message
        if place is not None:
            self.answers[self.open.pop(place)[0]] = message
        return True

    def _tool(self, span: Span) -> None:
        name, called = tool_name(span), call_id_of(span)
        content, error = result_of(span)
        places = range(len(self.open))
        by_id = [i for i in places if called and self.open[i][0] == called]
        place = next(iter([*by_id[-1:], *(i for i in places if self.open[i][1] == name)]), None)
        if place is None:
            self._called(span, name, called)
            place = len(self.open) - 1
        known = self.open.pop(place)[0]
        answer = {
            "role": "tool", "tool_call_id": known, "name": name, "error": error, "content": content,
            "latency_s": (span.end - span.start) / 1e9 if span.end and span.start else None,
            "timestamp": span.start / 1e9 if span.start else None,
        }  # fmt: skip
        if known:
            self.answers[known] = answer
        self.messages.append(answer)
        self.keys.append(key_of(answer))
        self._offered(schema_of(span))

    def _called(self, span: Span, name: str, called: str) -> None:
        """A call that no message names: of the latest turn, or of a new one."""
        given = arguments_of(span)
        arguments = (
            json.dumps(given) if isinstance(given, str) else given
        )  # free text is a legal input of a tool
        call = {"id": called, "function": {"name": name, "arguments": arguments}}
        last = next((m for m in reversed(self.messages) if m.get("role") != "tool"), None)
        if self.fresh or last is None or last.get("role") != "assistant":
            self._add({"role": "assistant", "content": None, "tool_calls": [call]})
        else:
            known = last.get("tool_calls")
            last["tool_calls"] = [*(known if isinstance(known, list) else ()), call]
            self.open.append((called, name))
        self.fresh = False


def _id_and_name(call: Any) -> tuple[str, str]:
    raw = parsed(call)
    found: Json = raw if isinstance(raw, dict) else {}
    function = found.get("function")
    name = function.get("name") if isinstance(function, dict) else function
    return as_label(found.get("id")) or "", as_label(name) or ""


def _name(tool: Json) -> str:
    return _id_and_name(tool)[1]
