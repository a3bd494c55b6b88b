"""Did a limit end the episode, or the agent? By the reason that the log gives, in whichever spelling."""

from __future__ import annotations

import re

__all__ = ["LIMITS", "is_limit"]

LIMITS = frozenset({
    "length", "max_tokens", "max_length", "max_new_tokens", "max_output_tokens", "max_completion_tokens", "model_length", "truncated",
    "max_steps", "max_turns", "max_iterations", "max_turns_reached", "max_turns_exceeded", "max_steps_reached", "recursion_limit",
    "timeout", "timeout_reached", "time_limit", "context_window_exceeded", "model_context_window_exceeded", "context_length_exceeded",
    "prompt_too_long", "token_limit", "context_limit", "message_limit", "cost_limit", "custom_limit", "max_total_completion_tokens_reached",
    "exit_cost", "exit_context", "exit_total_execution_time", "limits_exceeded", "time_exceeded",
    "max_input_tokens", "max_total_tokens", "compaction_failed", "agent_timeout",
})  # fmt: skip
"""Of providers, trainers and agent frameworks: SWE-agent's exit_*, mini-swe-agent's LimitsExceeded, verifiers' conditions, Inspect's limits."""

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s\-]+")
_INSIDE = re.compile(r"\(([^()]*)\)\s*\Z")


def is_limit(stop: str) -> bool:
    """Does the reason name a limit? SWE-agent's `submitted (exit_cost)` does: what stood there was submitted when the money was gone.

    >>> is_limit("LimitsExceeded"), is_limit("token limit"), is_limit("submitted (exit_cost)"), is_limit("Submitted")
    (True, True, True, False)
    """
    inside = _INSIDE.search(stop)
    return any(_plain(text) in LIMITS for text in (stop, *(inside.groups() if inside else ())))


def _plain(text: str) -> str:
    return _BETWEEN.sub("_", _CAMEL.sub("_", text.strip())).lower()
