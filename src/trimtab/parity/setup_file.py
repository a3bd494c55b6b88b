"""The set-up of a side: tools, prompts, stop rules, limits, sampling; of a file or of episodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trimtab.errors import ParityError
from trimtab.safe_files import require_regular
from trimtab.traces.core.episode import Episode

MAX_BYTES = 16_000_000
TEXTS = {
    "system_prompt": ("system_prompt", "system", "system_message", "developer_prompt"),
    "chat_template": ("chat_template", "chat_template_text"),
    "prompt_template": ("prompt_template", "user_template", "instruction_template"),
}
STOPS = {"stop": ("stop", "stop_sequences", "stop_strings", "stop_words", "stop_tokens", "stop_token_ids")}
LIMITS = {
    "max_tokens": (
        "max_tokens", "max_new_tokens", "max_completion_length", "max_response_length", "max_gen_len",
        "max_output_tokens", "max_completion_tokens", "response_length",
    ),
    "max_prompt_tokens": ("max_prompt_length", "max_prompt_tokens", "prompt_length"),
    "context_length": ("max_model_len", "context_length", "max_context", "max_seq_len", "max_length"),
    "max_turns": (
        "max_turns", "max_steps_per_episode", "max_iterations", "max_tool_calling_iterations",
        "max_assistant_turns", "max_tool_turns", "step_limit",
    ),
    "max_tool_calls": ("max_tool_calls", "max_calls", "tool_call_limit"),
    "tool_result_chars": (
        "tool_result_chars", "max_tool_response_length", "max_obs_length", "tool_output_limit",
    ),
    "timeout_s": ("timeout_s", "timeout", "episode_timeout", "tool_timeout_s", "tool_timeout"),
}  # fmt: skip
SAMPLING = {
    "temperature": ("temperature", "sampling_temperature"), "top_p": ("top_p",), "top_k": ("top_k",),
    "min_p": ("min_p",),
    "repetition_penalty": ("repetition_penalty",), "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "thinking": ("enable_thinking", "thinking", "reasoning_effort"),
    "num_samples": ("n", "num_samples", "num_generations", "rollout_n", "k"), "seed": ("seed",),
}  # fmt: skip
RULES = {
    "truncation": ("truncation", "truncation_side", "truncation_strategy", "truncate"),
    "tool_format": ("tool_format", "tool_call_parser", "tool_parser", "tool_call_format"),
    "tool_choice": ("tool_choice",), "parallel_tool_calls": ("parallel_tool_calls",),
    "scorer": ("scorer", "reward", "reward_function", "metric", "verifier", "grader"),
}  # fmt: skip
_CANONICAL = {
    alias: (group, name)
    for group, table in (
        ("text", TEXTS), ("stop", STOPS), ("limits", LIMITS), ("sampling", SAMPLING), ("rules", RULES),
    )
    for name, aliases in table.items() for alias in aliases
}  # fmt: skip
_TOOLS = ("tools", "tool_schemas", "functions", "toolset")


@dataclass(frozen=True)
class Setup:
    """One side."""

    source: str
    tools: tuple[dict[str, Any], ...] | None = None  # name, description, parameters; None where unstated
    fields: Mapping[tuple[str, str], Any] = field(default_factory=dict)  # (group, name) -> value
    others: Mapping[str, Any] = field(default_factory=dict)  # path -> value of what has no name here
    notes: tuple[str, ...] = ()
    complete: bool = True  # False: read off episodes, which do not state every setting


def load_setup(path: str) -> Setup:
    """Return the set-up of a YAML or JSON file; `PATH#a.b` takes the mapping at `a.b` of it.

    Raises:
        ParityError: no such file or key, not YAML or JSON, or not a mapping.
    """
    name, _, inside = path.partition("#")
    file = Path(name)
    try:
        require_regular(file, ParityError)
        if file.stat().st_size > MAX_BYTES:
            raise ParityError(f"{name} is larger than 16 MB; a set-up is a small file")
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise ParityError(f"{name} cannot be read: {error.strerror or error}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        first = " ".join(str(error).split())[:200]
        raise ParityError(f"{name} is neither YAML nor JSON: {first}") from error
    for key in filter(None, inside.split(".")):
        if not isinstance(data, dict) or key not in data:
            raise ParityError(f"{name} has no {inside!r}; it breaks off at {key!r}")
        data = data[key]
    if not isinstance(data, dict) or not data:
        raise ParityError(f"{path} is not a mapping of settings; write name and value, as temperature: 0.7")
    return setup_of(data, path)


def setup_of(data: Mapping[str, Any], source: str) -> Setup:
    """Return the set-up that a mapping states; of a setting that is stated twice, the outermost stands."""
    fields: dict[tuple[str, str], Any] = {}
    others: dict[str, Any] = {}
    notes: list[str] = []
    tools: tuple[dict[str, Any], ...] | None = None
    for path, value in sorted(_leaves(data), key=lambda item: (len(item[0]), item[0])):
        last = path[-1]
        if last in _TOOLS and isinstance(value, (list, Mapping)):
            tools = tools_of(value, source) if tools is None else tools
        elif last in _CANONICAL and (value is None or not isinstance(value, Mapping)):
            key = _CANONICAL[last]
            if key not in fields:
                fields[key] = value
            elif fields[key] != value:
                where = ".".join(path)
                notes.append(f"{source}: {where} = {value!r} is passed over, {key[1]} stands further out")
        else:
            others[".".join(path)] = value
    return Setup(source, tools, fields, others, tuple(notes))


def _leaves(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of each setting; tools stay whole."""
    for name, value in data.items():
        here = (*path, str(name))
        if isinstance(value, Mapping) and str(name) not in _TOOLS and value:
            yield from _leaves(value, here)
        else:
            yield here, value


def tools_of(value: Any, source: str) -> tuple[dict[str, Any], ...]:
    """Return tools as name, description and parameters, of any provider's form, of names or of a mapping."""
    if isinstance(value, Mapping):
        value = [{"name": n, **(tool if isinstance(tool, Mapping) else {})} for n, tool in value.items()]
    tools = []
    for tool in value:
        if isinstance(tool, str):
            tools.append({"name": tool, "description": None, "parameters": None})
            continue
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ParityError(f"{source}: a tool has no name; write name, description and parameters")
        schema = next((inner[k] for k in ("parameters", "inputSchema", "input_schema") if k in inner), None)
        tools.append({"name": inner["name"], "description": inner.get("description"), "parameters": schema})
    return tuple(tools)


def setup_of_episodes(episodes: Sequence[Episode], source: str) -> Setup:
    """Return what episodes say of their set-up: the commonest tools and prompt; a note tells of others."""
    schemas = Counter(json.dumps(e.tools, sort_keys=True) for e in episodes if e.tools)
    systems = Counter(next((t.content or "" for t in e.turns if t.role == "system"), "") for e in episodes)
    notes = []
    for what, counts in (("sets of tools", schemas), ("system prompts", systems)):
        if len(counts) > 1:
            notes.append(f"{source}: {len(counts)} {what}; the commonest is compared")
    tools = tools_of(json.loads(schemas.most_common(1)[0][0]), source) if schemas else None
    system = systems.most_common(1)[0][0] if systems else ""
    fields = {("text", "system_prompt"): system} if system else {}
    return Setup(source, tools, fields, {}, tuple(notes), complete=False)
