"""Events of OpenHands' SDK (version 1 on) to messages: a call and its result are an event each.

Calls of one answer share its `llm_response_id`. Events name the one before them, so a conversation that went
back has branches, of which the last event's is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_list, as_object, as_text, first_of
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.readers.coding_agents.claude_code import SUMMARIES
from trimtab.typing import Json

KINDS = frozenset({
    "SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "UserRejectObservation",
    "AgentErrorEvent", "Condensation", "CondensationRequest", "CondensationSummaryEvent",
    "ConversationErrorEvent", "ConversationStateUpdateEvent", "PauseEvent", "InterruptEvent",
    "HookExecutionEvent", "TokenEvent", "LLMCompletionLogEvent", "SecurityAnalysisEvent",
    "StreamingDeltaEvent", "ACPToolCallEvent",
})  # fmt: skip
_BRANCHES = "events of branches that a conversation left (OpenHands), left out"
_UNREAD = "events of OpenHands of a kind we do not read, left out"
_NO_RESULT = "observations of OpenHands without content under a name we know"
_SILENT = KINDS - {
    "SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "UserRejectObservation",
    "AgentErrorEvent", "Condensation", "ConversationErrorEvent", "PauseEvent", "InterruptEvent",
}  # fmt: skip


@dataclass
class Conversation:
    """What events become."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    stop: str | None = None
    model: str | None = None


def is_event(value: Json) -> bool:
    """Is it an event of the SDK?"""
    return as_label(value.get("kind")) in KINDS and "source" in value and "id" in value


def conversation_of(events: Sequence[Json], leaf: str | None, report: ReadReport) -> Conversation:
    """Return the conversation of events.

    Args:
        events: in the order in which they were written.
        leaf: the id of the event at which the conversation stands; None: the last one.
        report: where branches that were left, summaries, and events of other kinds are counted.
    """
    result = Conversation()
    answers: dict[str, dict[str, Any]] = {}
    for event in _on_the_way(events, leaf, report):
        kind = as_label(event.get("kind")) or ""
        if kind == "ActionEvent":
            _add_call(result, answers, event)
        elif kind in ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent"):
            result.messages.append(_result(event, report))
        elif kind in ("MessageEvent", "SystemPromptEvent"):
            _add_message(result, event)
        elif kind == "Condensation":
            report.note(SUMMARIES)
        elif kind == "ConversationErrorEvent":
            result.stop = stop_of(f"{event.get('code')}: {event.get('detail')}")
        elif kind in ("PauseEvent", "InterruptEvent"):
            result.stop = "interrupted"
        elif kind not in _SILENT:
            report.note_each(_UNREAD, kind)
    return result


def stop_of(error: str) -> str:
    """The reason behind an error that ended a conversation: a limit of iterations, or `error`.

    >>> stop_of("RuntimeError: Agent reached maximum iteration"), stop_of("MaxIterationsReached: 30")
    ('max_iterations', 'max_iterations')
    >>> stop_of("LLMNoActionError")
    'error'
    """
    low = error.lower().replace(" ", "").replace("_", "")
    return "max_iterations" if "maxiteration" in low or "maximumiteration" in low else "error"


def _on_the_way(events: Sequence[Json], leaf: str | None, report: ReadReport) -> list[Json]:
    """The events from the first to the leaf. One that names none before it follows the one written before."""
    ids = [as_label(event.get("id")) or f"#{i}" for i, event in enumerate(events)]
    index = {name: i for i, name in enumerate(ids)}
    at: int | None = index.get(leaf or "", len(events) - 1)
    way: list[int] = []
    passed: set[int] = set()
    while at is not None and at >= 0 and at not in passed:
        passed.add(at)
        way.append(at)
        parent = as_label(events[at].get("parent_id"))
        at = index.get(parent, at - 1) if parent is not None else at - 1
    after = [i for i in range(max(way, default=-1) + 1, len(events)) if "parent_id" not in events[i]]
    left = len(events) - len(way) - len(after)
    if left:
        report.note(_BRANCHES, left)
    return [events[i] for i in [*reversed(way), *after]]


def _add_call(result: Conversation, answers: dict[str, dict[str, Any]], event: Json) -> None:
    response = as_label(event.get("llm_response_id")) or as_label(event.get("id")) or ""
    answer = answers.get(response)
    if answer is None:
        answer = {
            "role": "assistant",
            "tool_calls": [],
            "timestamp": event.get("timestamp"),
            "response": response,
        }
        answers[response] = answer
        result.messages.append(answer)
    thought = as_list(event.get("thought"))
    if thought and not answer.get("content"):
        answer["content"] = thought
    if reasoning := event.get("reasoning_content"):
        answer.setdefault("reasoning_content", reasoning)
    call, action = as_object(event.get("tool_call")), as_object(event.get("action"))
    arguments = first_of(call, "arguments")
    if arguments is None:
        arguments = {name: value for name, value in action.items() if name != "kind"}
    name = as_label(first_of(event, "tool_name")) or as_label(call.get("name"))
    answer["tool_calls"].append(
        {"id": event.get("tool_call_id"), "function": {"name": name, "arguments": arguments}}
    )
    if action.get("kind") == "FinishAction":
        result.stop = "finished"


def _result(event: Json, report: ReadReport) -> dict[str, Any]:
    """A result's message. An exit code other than 0 is a failure, though OpenHands does not flag it."""
    message = {"role": "tool", "tool_call_id": event.get("tool_call_id"), "timestamp": event.get("timestamp")}
    if event.get("kind") == "AgentErrorEvent":
        return {**message, "content": event.get("error"), "is_error": True}
    if event.get("kind") == "UserRejectObservation":
        reason = f"Action rejected: {event.get('rejection_reason')}"
        return {**message, "content": reason, "is_error": True}
    observation = as_object(event.get("observation"))
    code = as_int(observation.get("exit_code"))
    failed = observation.get("is_error") is True or code not in (None, 0, -1)
    content = first_of(observation, "content", "output")
    if content is None:
        report.unread_message(_NO_RESULT, observation)
    return {**message, "content": content, "is_error": failed, **words_of_code(failed, code, content)}


def words_of_code(failed: bool, code: int | None, content: Any) -> dict[str, str]:
    """The error of a command that failed and printed nothing.

    >>> words_of_code(True, 1, ""), words_of_code(True, 1, "no such file")
    ({'error': 'Exit code 1'}, {})
    """
    silent = failed and code not in (None, 0) and not (as_text(content) or "").strip()
    return {"error": f"Exit code {code}"} if silent else {}


def _add_message(result: Conversation, event: Json) -> None:
    message = as_object(first_of(event, "llm_message", "system_prompt"))
    role = "system" if event.get("kind") == "SystemPromptEvent" else message.get("role")
    content = message.get("content") if "content" in message else message.get("text")
    if isinstance(event.get("system_prompt"), str):
        content = event["system_prompt"]
    extended = as_list(event.get("extended_content"))
    if extended and isinstance(content, list):
        content = [*content, *extended]
    reasoning = message.get("reasoning_content")
    answer = {
        "role": role,
        "content": content,
        "reasoning_content": reasoning,
        "timestamp": event.get("timestamp"),
    }
    answer = {name: one for name, one in answer.items() if one is not None}
    response = as_label(event.get("llm_response_id"))
    result.messages.append({**answer, "response": response} if response else answer)
    result.stop = "finished" if role == "assistant" else None
