"""The tree of a Claude Code session: which of its lines are of the conversation as it went on.

Each line names the one before it. Two kinds of branches leave the way from the last message back to the
first: what the user rewound, and the results of parallel calls, each of which hangs on its own call.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.traces.core.coerce import as_label, as_object, as_time, first_of, objects_in
from trimtab.typing import Json


def is_copied(value: Json, started: float | None) -> bool:
    """Is a line older than the session that it stands in, as what a fork repeats of the session before it?

    Args:
        value: a line.
        started: when the file's first prompt was queued, before the line; seconds since 1970.
    """
    time = as_time(value.get("timestamp"))
    return started is not None and time is not None and time < started - 1.0


def abandoned(values: Sequence[Json]) -> set[str]:
    """Return the ids of the lines that branch off the way to the last message, and are part of no answer on
    it.

    A compacted context begins a new tree, and goes on logically. Lines of which an ancestor is missing stay.

    >>> line = {"type": "user", "message": {"content": "a"}}
    >>> tree = [("1", None), ("2", "1"), ("3", "1")]
    >>> abandoned([{**line, "uuid": uuid, "parentUuid": parent} for uuid, parent in tree])
    {'2'}
    """
    lines = {uuid: one for one in values if (uuid := as_label(one.get("uuid"))) and "parentUuid" in one}
    parents = {
        uuid: as_label(first_of(one, "parentUuid", "logicalParentUuid")) for uuid, one in lines.items()
    }
    spoken = [uuid for uuid, one in lines.items() if one.get("type") in ("user", "assistant")]
    way: set[str] = set()
    at = spoken[-1] if spoken else None
    while at in lines and at not in way:
        way.add(at)
        at = parents[at]
    branches = {uuid for uuid in spoken if uuid not in way and _leaves(uuid, parents, way)}
    answers = {_answer(lines[uuid]) for uuid in spoken if uuid not in branches} - {None}
    branches -= {uuid for uuid in branches if _answer(lines[uuid]) in answers}
    calls = {one for uuid in spoken if uuid not in branches for one in _calls(lines[uuid])}
    return {uuid for uuid in branches if not calls.intersection(_results(lines[uuid]))}


def _leaves(uuid: str, parents: dict[str, str | None], way: set[str]) -> bool:
    """Does the line hang on one of the way?"""
    passed: set[str] = set()
    at: str | None = uuid
    while at in parents and at not in passed:
        if at in way:
            return True
        passed.add(at)
        at = parents[at]
    return False


def _answer(line: Json) -> str | None:
    """The id of the answer that a line is a block of."""
    return as_label(as_object(line.get("message")).get("id")) if line.get("type") == "assistant" else None


def _calls(line: Json) -> list[str | None]:
    blocks = objects_in(as_object(line.get("message")).get("content"))
    return [as_label(block.get("id")) for block in blocks if block.get("type") == "tool_use"]


def _results(line: Json) -> list[str | None]:
    blocks = objects_in(as_object(line.get("message")).get("content"))
    return [as_label(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
