"""One tool call, as the trainer or a log saw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """`latency_s` in seconds of wall time; `result_size` in characters of the result's text; `error` empty on
    success.

    `arguments` as the model gave them. `step` is the optimizer step whose rollouts made the call, -1 when
    unknown.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result_size: int = 0
    error: str = ""
    latency_s: float = float("nan")
    step: int = -1
    episode_id: int = -1
