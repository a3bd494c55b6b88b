"""Records of chat messages to episodes, with whatever else they name: chat logs, TRL's conversational sets, tau-bench."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.traces.blocks import provided
from trimtab.traces.episode import Episode
from trimtab.traces.json_records import require_object
from trimtab.traces.preferences import (
    REWARD,
    SIDES,
    SUCCESS,
    answer_of,
    is_answer,
    is_chat,
    is_preference,
    prompt_of,
    sides_of,
)
from trimtab.traces.reading import UNREAD_REWARD, UNREAD_SUCCESS, ReadReport, Record
from trimtab.traces.spelt_out import is_dialogue
from trimtab.traces.task_keys import space_of, task_key
from trimtab.traces.tool_schemas import tools_of
from trimtab.traces.turns import turns_of
from trimtab.traces.values import as_flag, as_int, as_label, as_number, as_time, first_of

__all__ = ["episode_of", "is_messages", "read_messages"]

Json = Mapping[str, Any]
_TURNS = ("messages", "conversations", "conversation", "contents")
_CHATS = ("messages", "prompt", "completion", "contents", "conversations", "conversation")
_STOPS = ("stop_reason", "finish_reason", "termination_reason", "stop_condition")
_MAY_BE_EXPORTED = {"tools", "token_ids", "token_mask", "token_logprobs"}


def is_messages(value: Json) -> bool:
    """Has it a list of messages under one of the usual names, or are its texts a prompt with a preference or with KTO's label?"""
    if any(is_chat(value.get(name)) for name in _CHATS) or any(is_answer(value.get(name)) for name in SIDES):
        return True
    if is_preference(value) and any(is_dialogue(value[name]) for name in SIDES):
        return True
    labelled = isinstance(value.get("label"), bool) and isinstance(value.get("completion"), str)
    return isinstance(value.get("prompt"), str) and (labelled or is_preference(value))


def read_messages(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """An episode a record: `messages`, or `prompt` and `completion` (text or messages), and whatever else it names; of `chosen` and
    `rejected` one each (`traces.preferences`). KTO's `label` of a completion is its success."""
    for record in records:
        value = require_object(record, report)
        if value is None:
            continue
        if is_preference(value):
            for side in sides_of(value, record.source, report):
                episode = episode_of(record, side.fields, side.messages, report)
                if episode.task is None and episode.group is None:
                    episode.group = side.group
                episode.extra, episode.for_training = {"preference": side.name}, True
                yield episode
            continue
        messages = first_of(value, *_TURNS)
        if not isinstance(messages, list):
            messages = [*prompt_of(value.get("prompt")), *answer_of(value.get("completion"))]
        if not messages:
            report.malformed(record.file, record.line, "no messages, nor prompt and completion")
            continue
        yield _of_export(episode_of(record, value, messages, report), value)


def _of_export(episode: Episode, value: Json) -> Episode:
    """With KTO's label, and the id under which our own export names the episode."""
    if (
        isinstance(value.get("label"), bool)
        and value.get("completion") is not None
        and episode.success is None
    ):
        episode.success = value["label"]
    if episode.id == episode.source and isinstance(value.get("episode"), str):
        episode.id = value["episode"] or episode.source
    episode.for_training = _trains(value)
    return episode


def _trains(value: Json) -> bool:
    """Is it a row to train on, which ends where the agent's last turn does? Not what says how it went: a rollout may have died in a call."""
    if any(value.get(name) is not None for name in (*REWARD, *SUCCESS, *_STOPS)):
        return False
    if first_of(value, *_TURNS) is not None:
        return value.keys() - _MAY_BE_EXPORTED == {"messages", "task", "episode"}
    return value.get("completion") is not None


def episode_of(record: Record, value: Json, messages: list[Any], report: ReadReport) -> Episode:
    """The episode of a record's messages and of the usual names for everything else."""
    version = value.get("policy_version")
    rewarded, told = first_of(value, *REWARD), first_of(value, *SUCCESS)
    report.unread(UNREAD_REWARD, rewarded, as_number(rewarded))
    report.unread(UNREAD_SUCCESS, told, as_flag(told))
    return Episode(
        id=as_label(first_of(value, "id", "episode_id", "uuid", "example_id", "session_id")) or record.source,
        turns=turns_of([*_system(value, messages), *messages], report),
        task=task_key(
            space_of(value), as_label(first_of(value, "task_id", "task", "prompt_id", "instance_id"))
        ),
        group=as_label(first_of(value, "group_id", "group")),
        reward=as_number(rewarded),
        success=as_flag(told),
        stop_reason=as_label(first_of(value, *_STOPS)),
        tools=_tools(value, messages, report),
        model=as_label(value.get("model")),
        policy_version=version if isinstance(version, (int, str)) else None,
        step=as_int(first_of(value, "step", "global_step", "train_step")),
        time=as_time(first_of(value, "timestamp", "created_at", "time")),
        duration_s=as_number(first_of(value, "duration_s", "duration", "total_time")),
        tokens=as_int(first_of(value, "total_tokens", "tokens")),
        cost=as_number(first_of(value, "cost", "total_cost")),
        source=record.source,
    )


def _tools(value: Json, messages: list[Any], report: ReadReport) -> list[dict[str, Any]] | None:
    """The tools that the record declares, and with them those of the provider's that are called; None where it declares none."""
    config = first_of(value, "toolConfig", "tool_config")  # Bedrock's
    given = (
        config.get("tools") if value.get("tools") is None and isinstance(config, dict) else value.get("tools")
    )
    tools = tools_of(given)
    if tools is None and isinstance(given, str) and given.strip():
        report.note("tools that are no JSON list, ignored")
    if tools is not None:
        known = {one["function"].get("name") for one in tools if isinstance(one.get("function"), dict)}
        ours = [name for name in provided(messages) if name not in known]
        tools += [{"type": "function", "function": {"name": name}} for name in ours]
    return tools


def _system(value: Json, messages: list[Any]) -> list[Json]:
    """The system prompt where it stands beside the messages: Anthropic's, Bedrock's, LLaMA-Factory's, Gemini's."""
    given = first_of(value, "system", "systemInstruction", "system_instruction")
    first = messages[0] if messages and isinstance(messages[0], dict) else {}
    role = as_label(first_of(first, "role", "from")) or ""
    if not given or role.strip().lower() == "system":
        return []
    if isinstance(given, dict) and "parts" in given:
        return [{"role": "system", "parts": given["parts"]}]
    return [{"role": "system", "content": given}] if isinstance(given, (str, list)) else []
