"""Records of chat messages to episodes, with whatever else they name: chat logs, TRL's conversational sets,
tau-bench."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trimtab.traces.core.coerce import as_flag, as_int, as_label, as_number, as_time, first_of
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import UNREAD_REWARD, UNREAD_SUCCESS, ReadReport, Record
from trimtab.traces.core.task_keys import space_of, task_key
from trimtab.traces.files.json_records import iter_objects
from trimtab.traces.messages.speakers import roles_of_speakers
from trimtab.traces.messages.turns import turns_of
from trimtab.traces.readers.chat_context import answer_in, system_of, tools_in, with_names_of_ours
from trimtab.traces.readers.preferences import (
    REWARD,
    SIDES,
    SUCCESS,
    answer_of,
    is_answer,
    is_chat,
    is_dialogue,
    is_preference,
    prompt_of,
    sides_of,
)
from trimtab.typing import Json

_TURNS = ("messages", "conversations", "conversation", "contents")
_CHATS = ("messages", "prompt", "completion", "contents", "conversations", "conversation")
_STOPS = ("stop_reason", "finish_reason", "termination_reason", "stop_condition")
_MAY_BE_EXPORTED = {"tools", "token_ids", "token_mask", "token_logprobs"}
_LABEL = ("label", "kto_tag")


def is_messages(value: Json) -> bool:
    """Has it a list of messages under one of the usual names, or are its texts a prompt with a preference or
    with KTO's label?"""
    if any(is_chat(value.get(name)) for name in _CHATS) or any(is_answer(value.get(name)) for name in SIDES):
        return True
    if is_preference(value) and any(is_dialogue(value[name]) for name in SIDES):
        return True
    labelled = isinstance(value.get("label"), bool) and isinstance(value.get("completion"), str)
    return isinstance(value.get("prompt"), str) and (labelled or is_preference(value))


def read_messages(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a record: `messages`, or `prompt` and `completion` (text or messages), and whatever else it
    names; of `chosen` and `rejected` one each (`traces.preferences`).

    KTO's `label` of a completion is its success.
    """
    for record, value in iter_objects(records, report):
        if is_preference(value):
            for side in sides_of(value, record.source, report):
                fields = with_names_of_ours(side.fields, side.messages)
                episode = episode_of(record, fields, side.messages, report)
                if episode.task is None and episode.group is None:
                    episode.group = side.group
                episode.extra, episode.for_training = {"preference": side.name}, True
                yield episode
            continue
        chat = chat_episode(record, value, report)
        if chat is None:
            report.malformed(record.file, record.line, "no messages, nor prompt and completion")
        else:
            yield chat


def messages_in(value: Json, report: ReadReport) -> tuple[list[Any], list[Any], str | None]:
    """A record's messages, those of the answer beside them, and why that one stopped."""
    messages = first_of(value, *_TURNS)
    if not isinstance(messages, list):
        messages = [*prompt_of(value.get("prompt")), *answer_of(value.get("completion"))]
    messages = roles_of_speakers(messages, report)
    answer, stop = answer_in(value, messages, report)
    return messages, answer, stop


def chat_episode(record: Record, value: dict[str, Any], report: ReadReport) -> Episode | None:
    """The episode of a record without preferences; None of one without a message."""
    recorded, answer, stop = messages_in(value, report)
    messages = [*recorded, *answer]
    if not messages:
        return None
    fields = with_names_of_ours(value, messages)
    episode = _of_export(episode_of(record, fields, messages, report), value)
    episode.stop_reason = stop if episode.stop_reason is None else episode.stop_reason
    episode.for_training |= bool(answer)  # what came back is in no record
    return episode


def _of_export(episode: Episode, value: Json) -> Episode:
    """With KTO's label, and the id under which our own export names the episode."""
    label = _label(value)
    if label is not None and episode.success is None:
        episode.success = label
    if episode.id == episode.source and isinstance(value.get("episode"), str):
        episode.id = value["episode"] or episode.source
    episode.for_training = _trains(value)
    return episode


def _label(value: Json) -> bool | None:
    """KTO's, of a completion or, in LLaMA-Factory's sets, of a conversation."""
    label = first_of(value, *_LABEL)
    rated = value.get("completion") is not None or is_chat(first_of(value, *_TURNS))
    return label if isinstance(label, bool) and rated else None


def _trains(value: Json) -> bool:
    """Is it a row to train on, which ends where the agent's last turn does?

    Not what says how it went: a rollout may have died in a call.
    """
    if any(value.get(name) is not None for name in (*REWARD, *SUCCESS, *_STOPS)):
        return False
    if first_of(value, *_TURNS) is not None:
        own = value.keys() - _MAY_BE_EXPORTED == {"messages", "task", "episode"}
        return own or _label(value) is not None
    return value.get("completion") is not None


def episode_of(record: Record, value: Json, messages: list[Any], report: ReadReport) -> Episode:
    """The episode of a record's messages and of the usual names for everything else."""
    version = value.get("policy_version")
    rewarded, succeeded = first_of(value, *REWARD), first_of(value, *SUCCESS)
    report.unread(UNREAD_REWARD, rewarded, as_number(rewarded))
    report.unread(UNREAD_SUCCESS, succeeded, as_flag(succeeded))
    return Episode(
        id=as_label(first_of(value, "id", "episode_id", "uuid", "example_id", "session_id")) or record.source,
        turns=turns_of([*system_of(value, messages), *messages], report),
        task=task_key(
            space_of(value), as_label(first_of(value, "task_id", "task", "prompt_id", "instance_id"))
        ),
        group=as_label(first_of(value, "group_id", "group")),
        reward=as_number(rewarded),
        success=as_flag(succeeded),
        stop_reason=as_label(first_of(value, *_STOPS)),
        tools=tools_in(value, messages, report),
        model=as_label(value.get("model")),
        policy_version=version if isinstance(version, (int, str)) else None,
        step=as_int(first_of(value, "step", "global_step", "train_step")),
        time=as_time(first_of(value, "timestamp", "created_at", "time")),
        duration_s=as_number(first_of(value, "duration_s", "duration", "total_time")),
        tokens=as_int(first_of(value, "total_tokens", "tokens")),
        cost=as_number(first_of(value, "cost", "total_cost")),
        source=record.source,
    )
