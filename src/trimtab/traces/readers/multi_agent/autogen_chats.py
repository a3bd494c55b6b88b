"""Chats of AG2 (`ChatResult.chat_history`, `GroupChat.messages`) and of AutoGen's AgentChat (`TaskResult`),
with it of Magentic-One: a row a chat, or a message a record.

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
from trimtab.traces.messages.speakers import by_name, speaker_name, with_code_results
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.multi_agent.agentchat_events import is_agentchat, messages_of_agentchat
from trimtab.typing import Json

_CHATS = ("chat_history", "history", "messages")
_MAXIMUM = re.compile(r"maximum (?:number of )?(messages|turns)", re.I)


def is_ag2_message(value: Json) -> bool:
    """Is it a message of a chat of AG2: one with a speaker's name, or with the results of several calls?"""
    if not isinstance(value.get("role"), str) or "content" not in value:
        return False
    return isinstance(value.get("name"), str) or isinstance(value.get("tool_responses"), list)


def is_chat_message(value: Json) -> bool:
    """Is it a message of AG2's or AgentChat's?"""
    return is_agentchat(value) or is_ag2_message(value)


def is_chat_row(value: Json) -> bool:
    """Is it a chat: AG2's result, AgentChat's, or a history of speakers?"""
    first = objects_in(value.get("messages"))[:1]
    if first and is_agentchat(first[0]):
        return True
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
    """The episode of a file of messages."""
    objects = list(iter_objects(records, report, is_chat_message, "no message with a speaker"))
    if objects:
        yield _episode([value for _, value in objects], {}, objects[0][0], report)


def _episode(messages: list[dict[str, Any]], value: Json, record: Record, report: ReadReport) -> Episode:
    chat = messages_of_agentchat(messages, report) if is_agentchat(messages[0]) else _of_ag2(messages)
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
