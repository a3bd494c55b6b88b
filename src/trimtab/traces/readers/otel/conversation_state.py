"""The state of one conversation while its spans are read: its messages so far, and the calls that wait for an
answer."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_list, as_text, first_of
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.messages.overlap import Key, key_of, num_known
from trimtab.traces.messages.responses_api import answer_of
from trimtab.traces.readers.otel.guessed_results import GuessedResults
from trimtab.traces.readers.otel.messages import finish_reason, first_choice, offered_tools
from trimtab.traces.readers.otel.span import Span
from trimtab.traces.readers.otel.tool_spans import (
    OpenCall,
    arguments_of,
    call_id_of,
    id_and_name,
    match_call,
    open_call,
    result_of,
    schema_of,
    tool_name,
)
from trimtab.typing import Json

_HANDOFF = "handoff to "  # OpenInference's, of the Agents SDK
_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")


class ConversationState:
    """Messages of a conversation in order, each with its key."""

    def __init__(self, report: ReadReport) -> None:
        self.episode = Episode(id="")
        self.report = report
        self.messages: list[dict[str, Any]] = []
        self.keys: list[Key] = []
        self.open: list[OpenCall] = []
        """Calls that have no answer."""
        self.num_requested = 0
        """Keys that were known before the answer of the latest span."""
        self._num_calls: Counter[str] = Counter()  # by id
        self._answers: dict[str, dict[str, Any]] = {}  # by the id of the call
        self._guesses = GuessedResults(report)
        self._retold: set[Key] = set()
        self._new_turn = True  # the next call without a message belongs to a new turn

    def add_model_span(self, span: Span, request: list[Json]) -> None:
        """Add a model span, which was sent `request` in OpenAI's messages."""
        attributes, episode = span.attributes, self.episode
        request = [message for message in request if not self._is_retold(message)]
        results = self._results_of(request)
        names = {call.id: call.name for call in self.open}
        self._guesses.settle(results, names)
        num = num_known(self.keys, [key_of(m) for m in request], self.report, names)
        for i, message in enumerate(request):
            call_id = as_label(message.get("tool_call_id")) or ""
            if i >= num or call_id in names.keys() & results.keys():
                self._add(results.get(call_id) or dict(message))
        self.num_requested = len(self.keys)
        tokens = as_int(first_of(attributes, *_TOKENS))
        answer = first_choice(attributes, self.report)
        usage: Json = {"usage": {"completion_tokens": tokens}}
        for message in answer_of(answer) if answer else ():
            self._add({**message, "timestamp": _seconds(span.start), **usage})
            usage = {}
        if not answer and not span.error:
            self.report.note("spans of a model that keep no answer, no turns made of them")
        self._new_turn = not answer
        episode.model = as_label(first_of(attributes, *_MODELS)) or episode.model
        if tokens is not None:
            episode.tokens = (episode.tokens or 0) + tokens
        reason = finish_reason(attributes, answer)
        episode.stop_reason = "error" if span.error and not answer else reason or episode.stop_reason
        self._offer(offered_tools(attributes))

    def add_tool_span(self, span: Span) -> None:
        """Add a tool span as the answer of its call. Without such a call it makes one."""
        self.num_requested = len(self.keys)
        name, call_id, (content, error) = tool_name(span), call_id_of(span), result_of(span)
        index, certain = match_call(span, self.open)
        if index is None:
            if name.startswith(_HANDOFF) and not call_id and content is None and arguments_of(span) is None:
                self.report.note("spans of a handoff, which are no call of a tool, left out")
                return
            self._add_call(span, name, call_id)
            index, certain = len(self.open) - 1, True
        by_id = certain and bool(call_id) and self.open[index].id == call_id
        others = any(call.name == name for i, call in enumerate(self.open) if i != index)
        unsure = self._guesses.is_unsure(name) or (others and not certain)
        known = self.open.pop(index).id
        answer: dict[str, Any] = {"role": "tool", "tool_call_id": known, "name": name, "content": content}
        latency = (span.end - span.start) / 1e9 if span.end and span.start else None
        answer |= {"error": error, "latency_s": latency, "timestamp": _seconds(span.start)}
        if known:
            self._answers[known] = answer
            if not by_id:
                self._guesses.add(known, answer, unsure)
        self.messages.append(answer)
        self.keys.append(key_of(answer))
        self._offer(schema_of(span))

    def _results_of(self, request: list[Json]) -> dict[str, dict[str, Any]]:
        """Return the results of a request by the id of their call.

        They also fill answers of spans without a result.
        """
        results: dict[str, dict[str, Any]] = {}
        for message in request:
            call_id = as_label(message.get("tool_call_id")) or ""
            answer = self._answers.get(call_id)
            if answer is not None and answer["content"] is None:
                answer["content"] = message.get("content")
            if message.get("role") == "tool" and self._num_calls[call_id] == 1:  # some logs use an id again
                results[call_id] = dict(message)
        return results

    def _is_retold(self, message: Json) -> bool:
        """Is it a known call or result as text, in a role of smolagents?"""
        role = message.get("role")
        known = bool(self._num_calls) and (role == "tool-call" or (role == "tool-response" and not self.open))
        if known and (key := key_of(message)) not in self._retold:
            self._retold.add(key)
            self.report.note("messages that tell a known call or result again (smolagents), left out")
        return known

    def _offer(self, tools: list[dict[str, Any]]) -> None:
        names = {id_and_name(tool)[1] for tool in self.episode.tools or []}
        if new := [tool for tool in tools if id_and_name(tool)[1] not in names]:
            self.episode.tools = [*(self.episode.tools or []), *new]

    def _add(self, message: dict[str, Any]) -> None:
        key = key_of(message)
        if message.get("role") == "tool" and not self._is_new_result(message):
            return
        calls = [open_call(call) for call in as_list(message.get("tool_calls"))]
        self.open += calls
        self._num_calls.update(call.id for call in calls)
        self.messages.append(message)
        self.keys.append(key)

    def _is_new_result(self, message: dict[str, Any]) -> bool:
        """Is the result new, rather than one of a tool span or of an earlier request?

        It then closes its call.

        Some instrumentations give a call the id of its item, and its result the id of the call. Such a result
        goes to the oldest open call.
        """
        call_id = as_label(message.get("tool_call_id")) or ""
        index = next((i for i in reversed(range(len(self.open))) if self.open[i].id == call_id), None)
        if index is None and call_id in self._answers:
            return False
        if index is None and call_id and call_id not in self._num_calls:
            text = as_text(message.get("content"))
            if not self.open and any(as_text(a.get("content")) == text for a in self._answers.values()):
                return False
            if self.open:
                self.report.note("results whose id no call has, given to the oldest open call")
                index, message["tool_call_id"] = 0, self.open[0].id
        self._answers[call_id] = message
        if index is not None:
            self._answers[self.open.pop(index).id] = message
        return True

    def _add_call(self, span: Span, name: str, call_id: str) -> None:
        """Add a call that no message has to the latest turn, or to a new one."""
        arguments = arguments_of(span)
        if isinstance(arguments, str):  # free text is a legal input of a tool
            arguments = json.dumps(arguments)
        call = {"id": call_id, "function": {"name": name, "arguments": arguments}}
        last = next((m for m in reversed(self.messages) if m.get("role") != "tool"), None)
        if self._new_turn or last is None or last.get("role") != "assistant":
            self._add({"role": "assistant", "content": None, "tool_calls": [call]})
        else:
            last["tool_calls"] = [*as_list(last.get("tool_calls")), call]
            self.open.append(open_call(call))
            self._num_calls[call_id] += 1
        self._new_turn = False


def _seconds(nanoseconds: int) -> float | None:
    return nanoseconds / 1e9 if nanoseconds else None
