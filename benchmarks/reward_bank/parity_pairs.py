"""Pairs of set-ups and of episodes that parity is judged by: one planted difference each, and equal ones written otherwise.

Figures: `parity_found_frac`, planted differences of set-ups that are reported above information in their own field, and shifts of
scores and stop reasons that are reported; `parity_false_frac`, equal pairs that are called not comparable. Of equal episodes at most 5 % may
be, the stated rate, and with tasks enough they are to be called equivalent (`parity_equal_accepted_frac`); of episodes that differ by the
margin at most 5 % may pass (`parity_margin_accepted_frac`).
"""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from trimtab.parity.parity_verdict import parity_of
from trimtab.parity.setup_differences import setup_differences
from trimtab.parity.setup_file import Setup, load_setup
from trimtab.traces.core.episode import Episode

TOOLS = [
    ("search", "Search the web.", {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}}),
    ("calculator", "Evaluate an expression.", {"expression": {"type": "string"}}),
    (
        "read_file",
        "Read a file.",
        {"path": {"type": "string"}, "mode": {"type": "string", "enum": ["text", "bytes"]}},
    ),
]
BASE: dict[str, Any] = {
    "model": "m", "system_prompt": "You are an agent.\nUse the tools.", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    "tools": [
        {"type": "function", "function": {"name": name, "description": text, "parameters": {
            "type": "object", "properties": properties, "required": list(properties)[:1]}}}
        for name, text, properties in TOOLS
    ],
    "stop": ["</answer>", "<|im_end|>"], "truncation": "left", "tool_call_parser": "hermes", "scorer": "exact",
    "limits": {"max_tokens": 2048, "max_turns": 8, "max_tool_calls": 20, "tool_result_chars": 4000, "timeout_s": 60, "max_prompt_length": 4096},
    "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "enable_thinking": True, "n": 8},
}  # fmt: skip
Plant = Callable[[dict[str, Any]], None]


def _tool(data: dict[str, Any], i: int = 0) -> dict[str, Any]:
    return data["tools"][i]["function"]


def planted() -> dict[str, tuple[str, Plant]]:
    """Name of a difference to the field it must be reported in and the change that plants it."""

    def put(*path: str, value: Any) -> Plant:
        def change(data: dict[str, Any]) -> None:
            for key in path[:-1]:
                data = data[key]
            data[path[-1]] = value

        return change

    def drop(*path: str) -> Plant:
        def change(data: dict[str, Any]) -> None:
            for key in path[:-1]:
                data = data[key]
            del data[path[-1]]

        return change

    return {
        "tool missing": ("tools.calculator", lambda d: d["tools"].pop(1) and None),
        "tool more": ("tools.browse", lambda d: d["tools"].append({"name": "browse", "description": "x", "parameters": {}})),
        "tool renamed": ("tools.search", lambda d: _tool(d).update(name="web_search")),
        "description": ("tools.search.description", lambda d: _tool(d).update(description="Search our index.")),
        "argument renamed": ("tools.search.q", lambda d: _tool(d)["parameters"]["properties"].update(q=_tool(d)["parameters"]["properties"].pop("query"))),
        "argument's type": ("tools.search.limit.type", lambda d: _tool(d)["parameters"]["properties"]["limit"].update(type="string")),
        "argument's enum": ("tools.read_file.mode.enum", lambda d: _tool(d, 2)["parameters"]["properties"]["mode"].update(enum=["text"])),
        "argument required": ("tools.search.required", lambda d: _tool(d)["parameters"].update(required=["query", "limit"])),
        "system prompt": ("text.system_prompt", put("system_prompt", value="You are an agent.")),
        "white space of the prompt": ("text.system_prompt", put("system_prompt", value="You are an agent. Use the tools.")),
        "chat template": ("text.chat_template", put("chat_template", value=BASE["chat_template"] + "{{ bos }}")),
        "stop rule missing": ("stop.stop", put("stop", value=["<|im_end|>"])),
        "stop rule unstated": ("stop.stop", drop("stop")),
        "truncation": ("rules.truncation", put("truncation", value="right")),
        "parser": ("rules.tool_format", put("tool_call_parser", value="json")),
        "scorer": ("rules.scorer", put("scorer", value="judge")),
        "fewer tokens": ("limits.max_tokens", put("limits", "max_tokens", value=1024)),
        "no limit of tokens": ("limits.max_tokens", put("limits", "max_tokens", value=None)),
        "more turns": ("limits.max_turns", put("limits", "max_turns", value=30)),
        "tool calls": ("limits.max_tool_calls", put("limits", "max_tool_calls", value=5)),
        "tool results": ("limits.tool_result_chars", put("limits", "tool_result_chars", value=500)),
        "timeout": ("limits.timeout_s", put("limits", "timeout_s", value=10)),
        "prompt length": ("limits.max_prompt_tokens", put("limits", "max_prompt_length", value=512)),
        "temperature": ("sampling.temperature", put("sampling", "temperature", value=0.0)),
        "top-p": ("sampling.top_p", put("sampling", "top_p", value=0.95)),
        "top-k": ("sampling.top_k", put("sampling", "top_k", value=20)),
        "thinking": ("sampling.thinking", put("sampling", "enable_thinking", value=False)),
        "repetition penalty": ("sampling.repetition_penalty", drop("sampling", "repetition_penalty")),
    }  # fmt: skip


def rewritten(data: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same set-up as another tool would write it: other order of keys, other names, flat or nested."""
    names = {"max_tokens": "max_completion_length", "tools": "functions", "system_prompt": "system", "max_turns": "max_iterations", "n": "num_generations"}  # fmt: skip

    def turn(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        items = list(value.items())
        rng.shuffle(items)
        return {key: turn(item) for key, item in items}

    flat = {
        **{k: v for k, v in data.items() if k not in ("limits", "sampling")},
        **data["limits"],
        **data["sampling"],
    }
    result = flat if rng.random() < 0.5 else {**data, "rollout": {**data["limits"], **data["sampling"]}}
    if result is not flat:
        result = {k: v for k, v in result.items() if k not in ("limits", "sampling")}
        result["rollout"] = {names.get(k, k): v for k, v in result["rollout"].items()}
    renamed = {names.get(k, k) if rng.random() < 0.5 else k: v for k, v in result.items()}
    key = "functions" if "functions" in renamed else "tools"
    if rng.random() < 0.5:  # MCP's form
        renamed[key] = [
            {"name": f["name"], "description": f["description"], "inputSchema": f["parameters"]}
            for f in (tool.get("function", tool) for tool in renamed[key])
        ]
    return turn(renamed)


def written(data: dict[str, Any], folder: Path, name: str, as_json: bool) -> Setup:
    """Write the set-up and read it back."""
    path = folder / f"{name}.{'json' if as_json else 'yaml'}"
    path.write_text(json.dumps(data) if as_json else yaml.safe_dump(data), encoding="utf-8")
    return load_setup(str(path))


def setup_results(seed: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield (kind, right): `planted` with each difference, `equal` with the same set-up rewritten."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = written(BASE, folder, "train", as_json=False)
        for field, plant in planted().values():
            data = copy.deepcopy(BASE)
            plant(data)
            rows = setup_differences(train, written(rewritten(data, rng), folder, "eval", rng.random() < 0.5))
            yield (
                "planted",
                [row.field for row in rows if row.severity != "info" and row.field == field] == [field],
            )
        for _ in range(len(planted())):
            same = written(rewritten(copy.deepcopy(BASE), rng), folder, "eval", rng.random() < 0.5)
            yield "equal", all(row.severity == "info" for row in setup_differences(train, same))


def episode_pair(
    rng: np.random.Generator, tasks: int, shift: float = 0.0, cut: float = 0.0
) -> list[list[Episode]]:
    """Two sets of four attempts at each task: evaluation solves by `shift` more, and is cut by `cut` more often."""
    ability = np.clip(rng.beta(1.5, 1.5, tasks), abs(shift), 1 - abs(shift))
    sides = []
    for side in (0, 1):
        rows = []
        for task, rate in enumerate(ability + side * shift):
            for attempt in range(4):
                stopped = "max_tokens" if rng.random() < 0.1 + side * cut else "stop"
                reward = float(rng.random() < rate)
                rows.append(
                    Episode(id=f"{side}-{task}-{attempt}", task=str(task), reward=reward, stop_reason=stopped)
                )
        sides.append(rows)
    return sides


def _called(pair: list[list[Episode]]) -> dict[str, Any]:
    return parity_of((Setup("train"), pair[0]), (Setup("eval"), pair[1]))


def figures(repeats: int = 200) -> dict[str, float]:
    """Return every figure of parity."""
    setups = list(setup_results())
    found = [right for kind, right in setups if kind == "planted"]
    false = [not right for kind, right in setups if kind == "equal"]
    rng = np.random.default_rng(0)
    for _ in range(repeats // 10):
        found.append(_called(episode_pair(rng, 200, shift=-0.15))["verdict"] == "not comparable")
        found.append(bool(_called(episode_pair(rng, 200, cut=0.15))["stop_reasons"]))
    equal = [_called(episode_pair(rng, 100)) for _ in range(repeats)]
    large = [_called(episode_pair(rng, 700)) for _ in range(repeats // 4)]
    margin = [_called(episode_pair(rng, 700, shift=0.05)) for _ in range(repeats // 2)]
    return {
        "parity_found_frac": float(np.mean(found)), "parity_planted": len(found),
        "parity_false_frac": float(np.mean([*false, *(r["verdict"] == "not comparable" for r in equal)])),
        "parity_false_setups_frac": float(np.mean(false)),
        "parity_equal_accepted_frac": float(np.mean([r["verdict"] == "comparable" for r in large])),
        "parity_margin_accepted_frac": float(np.mean([r["scores"]["state"] == "equivalent" for r in margin])),
    }  # fmt: skip
