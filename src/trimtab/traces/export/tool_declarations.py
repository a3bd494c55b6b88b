"""Tool schemas of training data: those of the log, in the form of chat templates, or else those of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trimtab.errors import TraceError
from trimtab.safe_files import require_regular
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.json_text import BadJson, parse_json
from trimtab.traces.table.schema_check import schemas_by_name

Tool = dict[str, Any]


def read_tools(path: str | Path) -> list[Tool]:
    """Return the schemas of a JSON file: a list, or an object whose `tools` is one.

    TraceError for anything else.
    """
    require_regular(path, TraceError)
    try:
        value = parse_json(Path(path).read_bytes())
    except OSError as error:
        raise TraceError(f"--tools {path} cannot be read: {error.strerror or error}") from error
    except BadJson as error:
        raise TraceError(f"--tools {path} is {error}") from error
    value = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(value, list) or not value:
        raise TraceError(
            f"--tools {path} holds no list of tools; it wants [{{...}}, ...] as OpenAI writes them"
        )
    for number, tool in enumerate(value, 1):
        if not isinstance(tool, dict) or not schemas_by_name([tool]):
            raise TraceError(f"--tools {path}: tool {number} has no name")
    return [wrapped(tool) for tool in value]


def wrapped(tool: Tool) -> Tool:
    """Return a schema as OpenAI, TRL and chat templates take it. One without a name stays as it is.

    >>> wrapped({"name": "f", "description": "d", "input_schema": {"type": "object"}})
    {'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {'type': 'object'}}}
    """
    if isinstance(tool.get("function"), dict) or not isinstance(tool.get("name"), str):
        return tool
    inner = {name: value for name, value in tool.items() if name not in ("type", "input_schema")}
    if "input_schema" in tool:
        inner.setdefault("parameters", tool["input_schema"])
    return {"type": "function", "function": inner}


def fill_tools(episodes: Iterable[Episode], tools: list[Tool] | None) -> int:
    """Wrap the schemas of episodes in place, and set `tools` where an episode has none. Return their number.

    A tool that is only a name in the log gets its schema from `tools`, too.
    """
    num_filled = 0
    named = {tool["function"]["name"]: tool for tool in tools or [] if not _is_name(tool)}
    for episode in episodes:
        if episode.tools:
            own = [wrapped(tool) for tool in episode.tools]
            episode.tools = [named.get(one["function"]["name"], one) if _is_name(one) else one for one in own]
        elif tools is not None and episode.tools is None:
            episode.tools, num_filled = tools, num_filled + 1
    return num_filled


def _is_name(tool: Tool) -> bool:
    """Is it only a name?"""
    function = tool.get("function")
    return isinstance(function, dict) and function.keys() == {"name"} and isinstance(function["name"], str)


def tool_warnings(episodes: Sequence[Episode], num_filled: int, tools: list[Tool] | None) -> list[str]:
    """Warn of calls without a schema in the log and in the file."""
    calling = [episode for episode in episodes if episode.calls]
    bare = sum(all(_is_name(tool) for tool in episode.tools or ()) for episode in calling)
    warnings = []
    if bare:
        warnings.append(
            f"{bare} of {len(calling)} episodes with calls have no tool schemas: a chat template will not "
            "tell the model of its tools. Give them with --tools tools.json"
        )
    known = schemas_by_name(tools or [])
    strange = Counter(c.name for e in calling if e.tools is tools for c in e.calls if c.name not in known)
    if num_filled and strange:
        names = ", ".join(f"{name} ({count} calls)" for name, count in strange.most_common(5))
        warnings.append(f"called, and not in the file of --tools: {names}")
    return warnings
