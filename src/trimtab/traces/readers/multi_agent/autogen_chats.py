"""Chats of AG2 (`ChatResult.chat_history`, `GroupChat.messages`) and of AutoGen's AgentChat (`TaskResult`),
with it of Magentic-One: a row a chat, or a message a record. OpenAI's messages come one a record, too.

AG2 keeps a chat from one agent's side, with the others as `user`, so names decide who is the agent. Held
against chats that ag2 0.11.5 and autogen-agentchat 0.7.5 made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.core.coerce import (
    as_flag,
    as_label,
    as_number,
    as_object,
    as_time,
    first_of,
    numbers_in,
    objects_in,
    sum_known,
)
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.normalization import ROLES
from trimtab.traces.messages.speakers import by_name, speaker_name, with_code_results
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.multi_agent.agentchat_events import is_agentchat, messages_of_agentchat
from trimtab.traces.readers.preferences import is_chat
from trimtab.typing import Json

_CHATS = ("chat_history", "history", "messages")
_CONVERSATION = (
    "conversation_id", "chat_id", "session_id", "thread_id", "episode_id", "dialog_id", "run_id",
)  # fmt: skip
_RESULT = "results of AgentChat that repeat the chat before them, read for its stop reason"
_MAXIMUM = re.compile(r"maximum (?:number of )?(messages|turns)", re.I)


def is_ag2_message(value: Json) -> bool:
    """Is it a message of a chat of AG2: one with a speaker's name, or with the results of several calls?"""
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    return isinstance(value.get("name"), str) or isinstance(value.get("tool_responses"), list)


def is_openai_message(value: Json) -> bool:
    """Is it a message of OpenAI's chats, with its content or its calls? Responses' items have a type."""
    return (
        "type" not in value
        and value.get("role") in ROLES
        and ("content" in value or isinstance(value.get("tool_calls"), list))
    )


def is_chat_message(value: Json) -> bool:
    """Is it a message of AG2's, AgentChat's or OpenAI's?"""
    return is_agentchat(value) or is_ag2_message(value) or is_openai_message(value)


def is_chat_row(value: Json) -> bool:
    """Is it a chat: AG2's result, AgentChat's, or a history of speakers?"""
    first = objects_in(value.get("messages"))[:1]
    if first and is_agentchat(first[0]):
        return True
    if is_chat(value.get("messages")) or is_chat(value.get("prompt")):
        return False  # the history is what was said before
    rows = objects_in(first_of(value, "chat_history", "history"))
    return bool(rows) and all("role" in one and "content" in one for one in rows[:5])


def read_chat_rows(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a row."""
    for record, value in iter_objects(
        records, report, is_chat_row, "no chat: chat_history, history or messages"
    ):
        messages = next((rows for name in _CHATS if (rows := objects_in(value.get(name)))), [])
        yield _episode(messages, value, record, report)


def read_chat_messages(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """The episode of a file of messages; one for each conversation, where messages name theirs."""
    chats: dict[str | None, list[tuple[Record, dict[str, Any]]]] = {}
    ends: dict[str, Any] = {}
    for record, value in iter_objects(records, report, _is_streamed, "no message of a chat"):
        if is_chat_message(value):
            chats.setdefault(as_label(first_of(value, *_CONVERSATION)), []).append((record, value))
        else:
            report.note(_RESULT)
            ends = {"stop_reason": value.get("stop_reason")}
    for name, messages in chats.items():
        yield _episode([value for _, value in messages], {"id": name, **ends}, messages[0][0], report)


def _is_streamed(value: Json) -> bool:
    """AgentChat's `run_stream` ends with a result, which has all messages again."""
    return is_chat_message(value) or is_chat_row(value)


def _episode(messages: list[dict[str, Any]], value: Json, record: Record, report: ReadReport) -> Episode:
    if is_agentchat(messages[0]):
        chat = messages_of_agentchat(messages, report)
    else:
        chat = _of_ag2(messages) if "chat_history" in value or _names_speakers(messages) else messages
    turns = turns_of(with_code_results(chat), report)
    times = [turn.time for turn in turns if turn.time is not None]
    stop = as_label(value.get("stop_reason"))
    limit = _MAXIMUM.search(stop or "")
    blamed = {name: value[name] for name in ("mistake_agent", "mistake_step") if value.get(name) is not None}
    return Episode(
        id=as_label(first_of(value, "id", "chat_id", "question_ID", "question_id")) or record.source,
        turns=turns,
        task=as_label(first_of(value, "task_id", "question_ID", "question_id")),
        success=as_flag(first_of(value, "success", "is_correct", "is_corrected")),
        stop_reason=f"max_{limit[1].lower()}" if limit else stop,
        time=times[0] if times else as_time(value.get("timestamp")),
        duration_s=times[-1] - times[0] if len(times) > 1 else None,
        tokens=sum_known(turn.tokens for turn in turns),
        cost=_cost(value.get("cost")),
        source=record.source,
        extra=blamed,
    )


def _cost(cost: Any) -> float | None:
    """AG2 gives the cost with and without what came from its cache."""
    if not isinstance(cost, dict):
        return as_number(cost)
    paid = as_object(cost.get("usage_excluding_cached_inference"))
    return as_number(paid.get("total_cost")) if paid else numbers_in(cost).get("total_cost")


def _names_speakers(messages: list[dict[str, Any]]) -> bool:
    """Has each message of a side its speaker, as its name or as its role? OpenAI's chats name but some."""
    return all(
        one.get("name") or one.get("tool_calls") or one.get("role") not in ("user", "assistant")
        for one in messages
    ) and any(one.get("name") or one.get("role") not in _PLAIN for one in messages)


def _of_ag2(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    chat: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        responses = objects_in(message.get("tool_responses"))
        if responses:
            chat += [{**one, "role": "tool", "timestamp": message.get("timestamp")} for one in responses]
            continue
        role = as_label(message.get("role")) or ""
        name = as_label(message.get("name")) or (speaker_name(role) if role not in _PLAIN else None)
        chat.append({**message, "role": by_name(message, i == 0), "name": name})
    return chat


_PLAIN = ("user", "assistant", "tool", "function", "system", "developer")
