"""Actions and observations of OpenHands before version 1 (`openhands/events`) to messages.

An observation names the action that caused it. Where the model called functions, `tool_call_metadata` holds
its answer; else an action is the call. Held against what openhands-ai 0.62.0 serializes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trimtab.traces.core.coerce import as_int, as_label, as_list, as_object, first_of, objects_in
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.readers.coding_agents.claude_code import SUMMARIES
from trimtab.traces.readers.coding_agents.openhands_events import Conversation, stop_of, words_of_code
from trimtab.typing import Json

_WORDS = (
    "message",
    "system",
    "recall",
    "change_agent_state",
    "condensation",
    "condensation_request",
    "null",
    "",
)
_SILENT = ("agent_state_changed", "null", "recall", "condense", "success", "")
_NOT_ARGUMENTS = (
    "thought",
    "is_input",
    "is_static",
    "blocking",
    "confirmation_state",
    "security_risk",
    "hidden",
    "cwd",
)
_ENDS = ("finish", "reject")


def is_action(value: Json) -> bool:
    """Is it an action, or an observation?"""
    if "source" not in value and "cause" not in value:
        return False
    action = isinstance(value.get("action"), str) and isinstance(value.get("args"), dict)
    return action or (isinstance(value.get("observation"), str) and "content" in value and "extras" in value)


def flat_history(history: Any) -> list[Json]:
    """The events of a history; older ones hold pairs of an action and its observation."""
    events: list[Json] = []
    for number, one in enumerate(as_list(history)):
        if isinstance(one, list):
            pair = objects_in(one)
            events += [{"id": f"p{number}", **event} if i == 0 else {"cause": f"p{number}", **event}
                for i, event in enumerate(pair)]  # fmt: skip
        elif isinstance(one, dict):
            events.append(one)
    return events


def conversation_of_actions(events: Sequence[Json], report: ReadReport) -> Conversation:
    """Return the conversation of actions and observations, in the order in which they were written."""
    result = Conversation()
    answers: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}  # of calls as the model named them -> as the action that ran
    for event in events:
        if isinstance(event.get("action"), str):
            _add_action(result, answers, names, event, report)
        else:
            result.messages.extend(_results(result, names, event))
    return result


def _add_action(
    result: Conversation,
    answers: dict[str, dict[str, Any]],
    names: dict[str, str],
    event: Json,
    report: ReadReport,
) -> None:
    kind, args = event["action"], as_object(event.get("args"))
    metadata = as_object(event.get("tool_call_metadata"))
    if kind in ("message", "system") and event.get("source") in ("user", "environment", "agent"):
        role = "system" if kind == "system" else "assistant" if event["source"] == "agent" else "user"
        text = first_of(args, "content", "thought") or event.get("message")
        result.messages.append({"role": role, "content": text, "timestamp": event.get("timestamp")})
        return
    if kind == "condensation":
        report.note(SUMMARIES)
    if kind in _WORDS or event.get("source") not in ("agent", None):
        return
    response = as_object(metadata.get("model_response"))
    name = as_label(response.get("id")) or f"e{event.get('id')}"
    result.model = as_label(response.get("model")) or result.model
    if (answer := answers.get(name)) is None:
        answer = {
            "role": "assistant",
            "tool_calls": [],
            "timestamp": event.get("timestamp"),
            "response": name,
        }
        answer["usage"] = response.get("usage")
        answers[name] = answer
        result.messages.append(answer)
    if not answer.get("content"):
        answer["content"] = _words(kind, args, response) or None
    called = as_label(metadata.get("tool_call_id"))
    call_id = f"e{event.get('id')}"
    if called:
        names[called] = call_id
    answer["tool_calls"].append({"id": call_id, "function": _function(kind, args, response, metadata)})
    if kind in _ENDS:
        result.stop = "finished" if kind == "finish" else "rejected"


def _words(kind: str, args: Json, response: Json) -> Any:
    """What the model said beside its calls; a thought that is a call's argument is none of it."""
    choices = objects_in(response.get("choices"))
    if choices:
        return as_object(choices[0].get("message")).get("content")
    return None if kind == "think" else args.get("thought") or args.get("final_thought")


def _function(kind: str, args: Json, response: Json, metadata: Json) -> Json:
    """The call as the model wrote it, or else as the action that it became."""
    for choice in objects_in(response.get("choices")):
        for call in objects_in(as_object(choice.get("message")).get("tool_calls")):
            if call.get("id") == metadata.get("tool_call_id") and isinstance(call.get("function"), dict):
                return dict(call["function"])
    name = as_label(metadata.get("function_name"))
    if kind == "call_tool_mcp" and name is None:
        return {"name": as_label(args.get("name")), "arguments": args.get("arguments")}
    arguments = {
        key: value for key, value in args.items() if key not in _NOT_ARGUMENTS and value not in (None, "")
    }
    return {"name": name or kind, "arguments": arguments}


def _results(result: Conversation, names: dict[str, str], event: Json) -> Iterator[dict[str, Any]]:
    kind, extras = as_label(event.get("observation")) or "", as_object(event.get("extras"))
    if kind == "agent_state_changed":
        state = as_label(extras.get("agent_state"))
        reason = as_label(extras.get("reason")) or ""
        if state in ("finished", "stopped", "rejected", "error"):
            result.stop = stop_of(reason) if state == "error" else state
        return
    cause = event.get("cause")
    called = as_label(as_object(event.get("tool_call_metadata")).get("tool_call_id"))
    call_id = names.get(called or "") if cause is None else f"e{cause}"
    if kind in _SILENT or (call_id is None and kind != "error"):
        return
    content = event.get("content")
    if call_id is None:  # an error of the agent's answer, which came to no action
        yield {"role": "user", "content": content, "timestamp": event.get("timestamp")}
        return
    code = as_int(first_of(as_object(extras.get("metadata")), "exit_code") or extras.get("exit_code"))
    failed = (
        kind in ("error", "user_rejected") or event.get("success") is False or extras.get("error") is True
    )
    failed = failed or code not in (None, 0, -1)
    row = {"role": "tool", "tool_call_id": call_id, "content": content, "is_error": failed}
    yield {**row, **words_of_code(failed, code, content)}
