"""Shapes that mapped records come in: an object of episodes, parallel arrays, steps of content blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.errors import TraceError
from trimtab.traces.core.coerce import as_label, as_object, as_text, first_of, objects_in
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.messages.content_blocks import unpacked
from trimtab.traces.messages.gemini_bedrock import CALLS, RESULTS
from trimtab.traces.readers.json_paths import NOTHING, at_star, value_at
from trimtab.typing import Json

PARALLEL = ("role", "content", "reasoning", "name", "tool", "args", "result", "error", "timestamp")
"""Fields of messages of which `--map messages.FIELD=PATH` names a list, with one value a message."""
_UNEVEN = "records whose parallel arrays differ in length, read up to the shortest"
_EXPANDED = "episodes that are fields of one record, each read"
_ROLES = {"assistant_message": "assistant", "user_message": "user"}


def episodes_in(
    mapping: Mapping[str, str], record: Record, report: ReadReport
) -> Iterator[tuple[Mapping[str, str], Any, str | None]]:
    """Yield each episode of a record: the mapping of its fields, its value, and its key, where it has one.

    A key `*` in a path stands for each of them. Without one, a record that has nothing at any path, and whose
    fields all have something at one, is an object of episodes.
    """
    stars = {name: star for name, path in mapping.items() if (star := at_star(path))}
    if not stars:
        inner = _fields(mapping, record.value)
        if inner is None:
            yield mapping, record.value, None
            return
        report.note(_EXPANDED, len(inner))
        yield from ((mapping, one, key) for key, one in inner.items())
        return
    prefixes = {before for before, _ in stars.values()}
    if len(prefixes) > 1:
        raise TraceError(f"--map: `*` stands at several places ({', '.join(sorted(prefixes))}); at one only")
    (prefix,) = prefixes
    holder = value_at(record.value, prefix) if prefix else record.value
    if isinstance(holder, list):
        holder = {str(i): one for i, one in enumerate(holder)}
    if not isinstance(holder, dict):
        report.malformed(record.file, record.line, f"no object or list of episodes at {prefix or '$'}")
        return
    report.note(_EXPANDED, len(holder))
    for key, one in holder.items():
        outer = {name: value_at(record.value, mapping[name]) for name in mapping if name not in stars}
        whole = {
            "outer": {name: one_value for name, one_value in outer.items() if one_value is not NOTHING},
            "key": key,
            "one": one,
        }
        paths = {name: f"outer.{name}" for name in outer}
        paths |= {
            name: f"one.{after}" if after else ("key" if name == "id" else "one")
            for name, (_, after) in stars.items()
        }
        yield paths, whole, key


def _fields(mapping: Mapping[str, str], value: Any) -> dict[str, Any] | None:
    """The fields of an object of episodes; None for another."""
    if (
        not isinstance(value, dict)
        or not value
        or any(value_at(value, path) is not NOTHING for path in mapping.values())
    ):
        return None
    spoken = [
        path
        for name, path in mapping.items()
        if name.partition(".")[0] in ("messages", "prompt", "completion")
    ]
    inner = all(any(value_at(one, path) is not NOTHING for path in spoken) for one in value.values())
    return {str(key): one for key, one in value.items()} if inner and spoken else None


def zipped_messages(arrays: Mapping[str, Any], report: ReadReport) -> list[dict[str, Any]]:
    """Messages of parallel arrays. Another value is of all; a call and its result have one index.

    >>> zipped_messages({"role": ["user", "assistant"], "content": ["a", "b"]}, ReadReport())
    [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]
    """
    sizes = {len(values) for values in arrays.values() if isinstance(values, list)}
    if not sizes:
        return []
    if len(sizes) > 1:
        report.note(_UNEVEN)
    messages: list[dict[str, Any]] = []
    for i in range(min(sizes)):
        one = {name: values[i] if isinstance(values, list) else values for name, values in arrays.items()}
        called = one.get("tool") is not None or one.get("args") is not None
        message = {"role": one.get("role") or "assistant"} | {
            ours: one[theirs]
            for ours, theirs in (
                ("content", "content"),
                ("reasoning_content", "reasoning"),
                ("name", "name"),
                ("timestamp", "timestamp"),
            )
            if one.get(theirs) is not None
        }
        if called:
            function = {
                "name": as_label(one.get("tool")) or "action",
                "arguments": _arguments(one.get("args")),
            }
            message["tool_calls"] = [{"id": f"p{i}", "function": function}]
        messages.append(message)
        result = {name: one[name] for name in ("error",) if one.get(name) is not None}
        if called and (result or one.get("result") is not None):
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": f"p{i}",
                    "content": as_text(one.get("result")) or "",
                    **result,
                }
            )
    return messages


def _arguments(value: Any) -> Any:
    """A command in plain words is the argument `input`."""
    plain = isinstance(value, str) and not value.lstrip().startswith(("{", "["))
    return {"input": value} if plain else value


def steps_of_blocks(values: Json, names: dict[str, str], report: ReadReport) -> list[dict[str, Any]]:
    """The steps of one whose content is blocks with calls or results, each a step; else the one step.

    Args:
        values: a step.
        names: the tool of each call so far, by id; filled.
        report: where blocks of other kinds are counted.
    """
    blocks = objects_in(values.get("content"))
    if not any(_acts(block) for block in blocks):
        return [dict(values)]
    kind = as_label(values.get("type")) or ""
    steps: list[dict[str, Any]] = []
    for message in unpacked({"role": _ROLES.get(kind, kind), "content": values["content"]}, report):
        if message.get("role") == "tool":
            failed = first_of(message, "error", "is_error", "isError")
            tool = names.get(as_label(message.get("tool_call_id")) or "")
            steps.append(
                {
                    **values,
                    "type": "tool_result",
                    "tool": tool,
                    "content": None,
                    "result": message.get("content"),
                    "error": failed,
                }
            )
            continue
        if message.get("content"):
            steps.append({**values, "content": message["content"]})
        for call in objects_in(message.get("tool_calls")):
            function = as_object(call.get("function"))
            name = as_label(function.get("name")) or ""
            names[as_label(call.get("id")) or ""] = name
            steps.append(
                {
                    **values,
                    "type": "tool_call",
                    "tool": name,
                    "args": function.get("arguments"),
                    "content": None,
                }
            )
    return steps


def _acts(block: Json) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and (kind in CALLS or kind in RESULTS or kind.endswith("_tool_result"))
