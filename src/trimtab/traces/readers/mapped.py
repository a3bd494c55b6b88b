"""Logs of no known format, by JSON paths: `--map id=$.run.uuid --map messages=data.turns --map
reward=score.value`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.core.coerce import as_label
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.readers.chat import read_messages
from trimtab.traces.readers.json_paths import NOTHING, value_at
from trimtab.traces.readers.mapped_shapes import PARALLEL, episodes_in, steps_of_blocks, zipped_messages
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


def at_path(value: Any, path: str) -> Any:
    """The value at a path of keys and indices; None where there is none.

    >>> at_path({"a": [{"b c": 7}]}, "$.a[0].b c"), at_path({"a": 1}, "a.b")
    (7, None)
    """
    result = value_at(value, path)
    return None if result is NOTHING else result


def read_mapped(
    mapping: Mapping[str, str], records: Iterable[Record], report: ReadReport
) -> Iterator[Episode]:
    """Episodes of records whose fields lie at the given paths; the report knows how many records had nothing
    there.

    TraceError for a field that there is none of.
    """
    for name in mapping:
        field, _, part = name.partition(".")
        if name not in FIELDS and not (field == "messages" and part in PARALLEL):
            raise TraceError(f"--map {name}=...: there is no such field; one of {', '.join(FIELDS)}")
    steps = is_step_mapping(mapping)
    read = {name.partition(".")[0] for name in mapping}
    if not steps and not read & {"messages", "prompt", "completion", "chosen", "rejected"}:
        raise TraceError(
            "--map needs messages, or prompt and completion; for one step a line episode_id and type"
        )
    renamed = _all_renamed(mapping, records, report, steps)
    return (read_steps if steps else read_messages)(renamed, report)


def _all_renamed(
    mapping: Mapping[str, str], records: Iterable[Record], report: ReadReport, steps: bool
) -> Iterator[Record]:
    names: dict[str, dict[str, str]] = {}  # tools of the calls of each episode
    for record in records:
        if not isinstance(record.value, dict):
            yield record
        elif steps:
            values = _renamed(mapping, record.value, report)
            known = names.setdefault(as_label(values.get("episode_id")) or "", {})
            yield from (record._replace(value=one) for one in steps_of_blocks(values, known, report))
        else:
            for paths, value, key in episodes_in(mapping, record, report):
                values = _renamed(paths, value, report, mapping)
                if key is not None and values.get("id") is None:
                    values["id"] = key
                yield record._replace(value=values)


def is_step_mapping(mapping: Mapping[str, str]) -> bool:
    """Is a record of it a step?"""
    return "episode_id" in mapping and "type" in mapping


def _renamed(
    paths: Mapping[str, str], record: Any, report: ReadReport, mapping: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The values at the paths, by our names; `mapping`: the paths as the user wrote them."""
    values: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    report.mapped += 1
    for ours, path in paths.items():
        result = value_at(record, path)
        report.missed[f"{ours}={(mapping or paths)[ours]}"] += result is NOTHING
        if ours.startswith("messages."):
            arrays |= {} if result is NOTHING else {ours.removeprefix("messages."): result}
            continue
        values[ours] = None if result is NOTHING else _messages(result) if ours in _MAY_BE_TEXT else result
    if arrays:
        values["messages"] = zipped_messages(arrays, report)
    return values


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
