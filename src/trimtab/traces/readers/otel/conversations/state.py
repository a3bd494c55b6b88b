"""What is known of one conversation while its spans are read: its messages so far, and the calls that wait for an answer."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_text, first_of
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.overlap import Key, key_of, num_known
from trimtab.traces.messages.responses_api import answer_of
from trimtab.traces.readers.otel.choices import first_answer
from trimtab.traces.readers.otel.conversations.match_by_name import Guesses
from trimtab.traces.readers.otel.conversations.pending_calls import Open, id_and_name, opened, place_of
from trimtab.traces.readers.otel.messages import finish_reason, tools_given
from trimtab.traces.readers.otel.span import Span
from trimtab.traces.readers.otel.tool_spans import (
    arguments_of,
    call_id_of,
    result_of,
    schema_of,
    tool_name,
)
from trimtab.typing import Json

_HANDOFF = "handoff to "  # OpenInference's, of the Agents SDK
_USED = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")


class Talk:
    """`messages` so far and their `keys`; `open`: calls among them that have no answer; `called`: how often each id; `answers`: by the call's id."""

    def __init__(self, report: ReadReport) -> None:
        self.episode = Episode(id="")
        self.report = report
        self.messages: list[dict[str, Any]] = []
        self.keys: list[Key] = []
        self.open: list[Open] = []
        self.called: Counter[str] = Counter()
        self.told: set[Key] = set()
        self.answers: dict[str, dict[str, Any]] = {}
        self.guesses = Guesses(report)
        self.num_given = 0  # of its keys, before what its last span said
        self.fresh = True  # the next call without a message is of a new turn

    def model(self, span: Span, given: list[Json]) -> None:
        """Take the span of a model that was asked `given`, OpenAI's messages."""
        attributes, episode = span.attributes, self.episode
        given = [message for message in given if not self._retold(message)]
        results = self._results(given)
        names = {one.id: one.name for one in self.open}
        self.guesses.settle(results, names)
        num = num_known(self.keys, [key_of(m) for m in given], self.report, names)
        for i, message in enumerate(given):
            called = as_label(message.get("tool_call_id")) or ""
            if i >= num or called in names.keys() & results.keys():
                self._add(results.get(called) or dict(message))
        self.num_given = len(self.keys)
        used = as_int(first_of(attributes, *_USED))
        said = first_answer(attributes, self.report)
        if said:
            usage = {"usage": {"completion_tokens": used}}
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
        if used is not None:
            episode.tokens = (episode.tokens or 0) + used
        reason = finish_reason(attributes, said)
        episode.stop_reason = "error" if span.error and not said else reason or episode.stop_reason
        self._offered(tools_given(attributes))

    def tool(self, span: Span) -> None:
        """Take the span of a tool: the answer of its call."""
        self.num_given = len(self.keys)
        name, called = tool_name(span), call_id_of(span)
        content, error = result_of(span)
        place, sure = place_of(span, self.open)
        if (
            place is None
            and name.startswith(_HANDOFF)
            and not called
            and content is None
            and arguments_of(span) is None
        ):
            self.report.note("spans of a handoff, which are no call of a tool, left out")
            return
        if place is None:
            self._called(span, name, called)
            place, sure = len(self.open) - 1, True
        by_id = sure and bool(called) and self.open[place].id == called
        others = any(one.name == name for i, one in enumerate(self.open) if i != place)
        unsure = self.guesses.of(name) or (others and not sure)
        known = self.open.pop(place).id
        answer = {
            "role": "tool", "tool_call_id": known, "name": name, "error": error, "content": content,
            "latency_s": (span.end - span.start) / 1e9 if span.end and span.start else None,
            "timestamp": span.start / 1e9 if span.start else None,
        }  # fmt: skip
        if known:
            self.answers[known] = answer
        if not by_id:
            self.guesses.add(known, answer, unsure)
        self.messages.append(answer)
        self.keys.append(key_of(answer))
        self._offered(schema_of(span))

    def _results(self, given: list[Json]) -> dict[str, dict[str, Any]]:
        """What a request says under ids of calls. A span that has no result of its call has it from here."""
        results: dict[str, dict[str, Any]] = {}
        for message in given:
            called = as_label(message.get("tool_call_id")) or ""
            answer = self.answers.get(called)
            if answer is not None and answer["content"] is None:
                answer["content"] = message.get("content")
            if message.get("role") == "tool" and self.called[called] == 1:  # some logs use an id again
                results[called] = dict(message)
        return results

    def _retold(self, message: Json) -> bool:
        """smolagents gives the model its calls and their results again as words, in roles of its own."""
        role = message.get("role")
        known = bool(self.called) and (role == "tool-call" or (role == "tool-response" and not self.open))
        if known and (key := key_of(message)) not in self.told:
            self.told.add(key)
            self.report.note("messages that tell a known call or result again (smolagents), left out")
        return known

    def _offered(self, tools: list[dict[str, Any]]) -> None:
        names = {id_and_name(tool)[1] for tool in self.episode.tools or []}
        if fresh := [tool for tool in tools if id_and_name(tool)[1] not in names]:
            self.episode.tools = [*(self.episode.tools or []), *fresh]

    def _add(self, message: dict[str, Any]) -> None:
        key = key_of(message)
        if message.get("role") == "tool" and not self._answers(message):
            return
        calls = message.get("tool_calls")
        made = [opened(call) for call in (calls if isinstance(calls, list) else ())]
        self.open += made
        self.called.update(one.id for one in made)
        self.messages.append(message)
        self.keys.append(key)

    def _answers(self, message: dict[str, Any]) -> bool:
        """Is the result new? A tool's span, or an earlier input, may have answered its call. Some instrumentations give a call the id of
        its item, and its result the id of the call: such a result is the oldest open call's."""
        said = as_label(message.get("tool_call_id")) or ""
        place = next((i for i in reversed(range(len(self.open))) if self.open[i].id == said), None)
        if place is None and said in self.answers:
            return False
        if place is None and said and said not in self.called:
            text = as_text(message.get("content"))
            if not self.open and any(as_text(a.get("content")) == text for a in self.answers.values()):
                return False
            if self.open:
                self.report.note("results whose id no call has, given to the oldest open call")
                place, message["tool_call_id"] = 0, self.open[0].id
        self.answers[said] = message
        if place is not None:
            self.answers[self.open.pop(place).id] = message
        return True

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
            self.open.append(opened(call))
            self.called[called] += 1
        self.fresh = False
