"""One tool call, as the executor, the trainer or a log saw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

BLAMES = ("policy", "tool", "infrastructure")
"""Who caused a failed call: the model (bad name, bad arguments, refused, wrong SQL), the tool (error,
timeout), or what stands between them (connection, 5xx, a dead sandbox, a locked database)."""


@dataclass(frozen=True)
class ToolCall:
    """A call's name, arguments, size, error and seconds.

    `latency_s` in seconds of wall time, retries included and `queued_s` not; `result_size` in characters of
    the result's text; `error` empty on success. `arguments` as the model gave them. `step` is the optimizer
    step whose rollouts made the call, -1 when unknown.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result_size: int = 0
    error: str = ""
    latency_s: float = float("nan")
    step: int = -1
    episode_id: int = -1
    blame: str = ""  # one of BLAMES; "": no failure, or nobody said whose it was
    kind: str = ""  # of the failure, as "timeout"; "": none, or unknown
    attempts: int = 1  # times the tool was asked; 0: never, as for a cached or refused call
    queued_s: float = 0.0  # seconds it waited for our own limits
    cached: bool = False  # answered from the cache


_PLAIN = {one.name: one.default for one in fields(ToolCall) if one.default is not MISSING}
_ALWAYS = ("result_size", "error", "latency_s", "step", "episode_id")


def call_row(call: ToolCall) -> dict[str, Any]:
    """Return the fields of a call as a row to store, without those an executor alone sets where it did not.

    >>> sorted(call_row(ToolCall("search", kind="timeout")))
    ['arguments', 'episode_id', 'error', 'kind', 'latency_s', 'name', 'result_size', 'step']
    """
    row = {one.name: getattr(call, one.name) for one in fields(call)}
    return {
        key: value
        for key, value in row.items()
        if key in _ALWAYS or key not in _PLAIN or value != _PLAIN[key]
    }


def call_from_row(row: Mapping[str, Any]) -> ToolCall:
    """Return the call of a stored row.

    >>> call = ToolCall("search", kind="timeout", step=3)
    >>> call_from_row(call_row(call) | {"rank": 0}).kind
    'timeout'
    """
    return ToolCall(**{name: row[name] for name in ToolCall.__dataclass_fields__ if name in row})
