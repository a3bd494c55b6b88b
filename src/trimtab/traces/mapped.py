"""Logs of no known format, by JSON paths: `--map id=$.run.uuid --map messages=data.turns --map reward=score.value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.episode import Episode
from trimtab.traces.messages import read_messages
from trimtab.traces.reading import ReadReport, Record
from trimtab.traces.steps import read_steps

__all__ = ["FIELDS", "at_path", "read_mapped"]

_STEP_FIELDS = ("episode_id", "step", "timestamp", "type", "tool", "args", "result", "error", "content")
FIELDS = (
    "id", "messages", "prompt", "completion", "task_id", "group_id", "reward", "success", "stop_reason", "tools", "model",
    "policy_version", "tokens", "total_tokens", "cost", "duration_s", *_STEP_FIELDS,
)  # fmt: skip
"""What `--map` may name. With `episode_id` and `type` a line is a step, otherwise an episode."""

_PART = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")


def at_path(value: Any, path: str) -> Any:
    """The value at a path of keys and places; None where there is none.

    >>> at_path({"a": [{"b c": 7}]}, "$.a[0].b c"), at_path({"a": 1}, "a.b")
    (7, None)
    """
    for key, place in _PART.findall(path.removeprefix("$")):
        if key and isinstance(value, dict):
            value = value.get(key)
        elif place and isinstance(value, list) and -len(value) <= int(place) < len(value):
            value = value[int(place)]
        else:
            return None
    return value


def read_mapped(
    mapping: Mapping[str, str], records: Iterable[Record], report: ReadReport
) -> Iterator[Episode]:
    """Episodes of records whose fields lie at the given paths. TraceError for a field that there is none of."""
    for name in mapping:
        if name not in FIELDS:
            raise TraceError(f"--map {name}=...: there is no such field; one of {', '.join(FIELDS)}")
    steps = "episode_id" in mapping and "type" in mapping
    if not steps and not mapping.keys() & {"messages", "prompt", "completion"}:
        raise TraceError(
            "--map needs messages, or prompt and completion; for one step a line episode_id and type"
        )
    renamed = (
        Record(r.file, r.line, {ours: at_path(r.value, path) for ours, path in mapping.items()})
        if isinstance(r.value, dict)
        else r
        for r in records
    )
    return (read_steps if steps else read_messages)(renamed, report)
