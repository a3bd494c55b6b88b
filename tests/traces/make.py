"""Small synthetic logs, in the shapes of the formats; no real data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def chat(
    *, call_id: str = "c1", name: str = "search", arguments: str = '{"q": "x"}', result: str = "found"
) -> list[dict[str, Any]]:
    """One call with its result between a question and an answer."""
    function = {"name": name, "arguments": arguments}
    return [
        {"role": "user", "content": "Where is x?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "name": name, "content": result},
        {"role": "assistant", "content": "There."},
    ]


def tau(
    task: int, trial: int, reward: float, messages: list[dict[str, Any]], scored: bool = True
) -> dict[str, Any]:
    info = {"task": {"user_id": "u"}, "reward_info": {"reward": reward} if scored else None}
    return {"task_id": task, "reward": reward, "info": info, "traj": messages, "trial": trial}


def steps(episode: str, calls: int = 2, reward: float = 1.0, start: float = 1000.0) -> list[dict[str, Any]]:
    """A question, `calls` calls that take half a second each, an answer, the end."""
    rows: list[dict[str, Any]] = [{"type": "user_message", "content": "go"}]
    for i in range(calls):
        rows.append({"type": "tool_call", "tool": "search", "args": {"q": i}, "tokens": 10})
        rows.append({"type": "tool_result", "tool": "search", "result": f"r{i}"})
    rows += [
        {"type": "assistant_message", "content": "done", "tokens": 5},
        {"type": "episode_end", "success": reward > 0, "reward": reward, "total_tokens": 10 * calls + 5},
    ]
    return [
        {"episode_id": episode, "step": i, "timestamp": start + 0.5 * i, **row} for i, row in enumerate(rows)
    ]
