"""Logs of no known format, by JSON paths: `--map id=$.run.uuid --map messages=data.turns --map
reward=score.value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.readers.chat import read_messages
from trimtab.traces.readers.preferences import is_chat
from trimtab.traces.readers.ptt_steps.reader import read_steps

_STEP_FIELDS = ("episode_id", "step", "timestamp", "type", "tool", "args", "result", "error", "content")
FIELDS = (
    "id", "messages", "prompt", "completion", "chosen", "rejected", "label", "task_id", "group_id", "reward",
    "success", "stop_reason", "tools", "model",
    "policy_version", "tokens", "total_tokens", "cost", "duration_s", *_STEP_FIELDS,
)  # fmt: skip
"""What `--map` may name. With `episode_id` and `type` a line is a step, otherwise an episode."""

_MAY_BE_TEXT = ("messages", "prompt", "completion", "chosen", "rejected")  # tools are read by their reader
_NOTHING = object()
_PART = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")


def at_path(value: Any, path: str) -> Any:
    """The value at a path of keys and indices; None where there is none.

    >>> at_path({"a": [{"b c": 7}]}, "$.a[0].b c"), at_path({"a": 1}, "a.b")
    (7, None)
    """
    result = _value_at(value, path)
    return None if result is _NOTHING else result


def _value_at(value: Any, path: str) -> Any:
    for key, index in _PART.findall(path.removeprefix("$")):
        if key and isinstance(value, dict) and key in value:
            value = value[key]
        elif index and isinstance(value, list) and -len(value) <= int(index) < len(value):
            value = value[int(index)]
        else:
            return _NOTHING
    return value


def read_mapped(
    mapping: Mapping[str, str], records: Iterable[Record], report: ReadReport
) -> Iterator[Episode]:
    """Episodes of records whose fields lie at the given paths; the report knows how many records had nothing
    there.

    TraceError for a field that there is none of.
    """
    for name in mapping:
        if name not in FIELDS:
            raise TraceError(f"--map {name}=...: there is no such field; one of {', '.join(FIELDS)}")
    steps = is_step_mapping(mapping)
    if not steps and not mapping.keys() & {"messages", "prompt", "completion", "chosen", "rejected"}:
        raise TraceError(
            "--map needs messages, or prompt and completion; for one step a line episode_id and type"
        )
    renamed = (_renamed(mapping, r, report) if isinstance(r.value, dict) else r for r in records)
    return (read_steps if steps else read_messages)(renamed, report)


def is_step_mapping(mapping: Mapping[str, str]) -> bool:
    """Is a record of it a step?"""
    return "episode_id" in mapping and "type" in mapping


def _renamed(mapping: Mapping[str, str], record: Record, report: ReadReport) -> Record:
    values: dict[str, Any] = {}
    report.mapped += 1
    for ours, path in mapping.items():
        result = _value_at(record.value, path)
        report.missed[f"{ours}={path}"] += result is _NOTHING
        values[ours] = None if result is _NOTHING else _messages(result) if ours in _MAY_BE_TEXT else result
    return Record(record.file, record.line, values)


def _messages(value: Any) -> Any:
    """The messages of JSON text, as sets on the Hub hold them; other text stays."""
    try:
        messages = parse_json(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    except BadJson:
        return value
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
        messages = messages[0]  # LangSmith's runs of a model are batches
    return messages if is_chat(messages) else value


def say_missed(mapping: Mapping[str, str], report: ReadReport) -> None:
    """Note the paths at which records had nothing.

    Where a record is a step, those that none had: a call has no result.
    """
    steps = is_step_mapping(mapping)
    for name, count in report.missed.items():
        if count == report.mapped:
            report.note(f"records read, and --map {name} is in none of them", count)
        elif count and not steps:
            report.note(f"records in which --map {name} is not found", count)
