"""Stop reasons in any spelling: whether a limit ended the episode, or the agent."""

from __future__ import annotations

import re

LIMITS = frozenset({
    "length", "max_length", "model_length", "truncated", "timeout", "timeout_reached", "time_out",
    "timed_out", "agent_timeout", "prompt_too_long", "context_overflow",
    "exit_cost", "exit_context", "exit_total_execution_time", "compaction_failed", "out_of_tokens",
    "out_of_time", "out_of_context", "out_of_budget", "graph_recursion_error",
    "agent_stopped_due_to_iteration_limit_or_time_limit", "agent_stopped_due_to_max_iterations",
})  # fmt: skip
"""Of providers, trainers and agent frameworks: SWE-agent's exit_*, verifiers' conditions. Others are made of
the words below, as in `max_turns`, `step_limit` (Inspect's), `token_budget_exceeded`,
`max_total_completion_tokens_reached`, mini-swe-agent's `LimitsExceeded`."""

_THING = (
    r"(?:(?:model|agent|episode|total|new|input|output|completion|prompt|response|context|window|wall|clock|execution|working|tool|llm|api|"
    r"token|step|turn|iteration|message|call|time|cost|budget|length|depth|recursion|round|action|custom)s?_?)"
)
_REACHED = r"(?:reached|exceeded|hit|exhausted|overrun)"
_MADE = re.compile(
    rf"(?:max(?:imum)?_(?:number_of_|num_|n_)?{_THING}{{1,4}}(?:_?{_REACHED})?|(?:exceeded|reached|hit)_(?:the_)?max(?:imum)?_{_THING}{{1,4}}|"
    rf"{_THING}{{0,4}}(?:limits?|budget)(?:_{_REACHED})?|{_THING}{{1,4}}(?:exceeded|exhausted|overrun)|(?:exceeded|reached|hit|exhausted)_(?:the_)?{_THING}{{0,4}}limits?)"
)
_PREFIX = re.compile(r".*[.:=]_*|(?:stop|finish|termination)_reason_")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s\-_]+")
_INSIDE = re.compile(r"\(([^()]*)\)\s*\Z")


def is_limit(stop: str) -> bool:
    """Does the reason name a limit? SWE-agent's `submitted (exit_cost)` does: what stood there was submitted
    when the money was gone.

    >>> (is_limit("LimitsExceeded"), is_limit("token limit"), is_limit("submitted (exit_cost)"),
    ...     is_limit("Submitted"))
    (True, True, True, False)
    >>> (is_limit("FinishReason.MAX_TOKENS"), is_limit("max-steps exceeded"), is_limit("within budget"),
    ...     is_limit("rate_limit"))
    (True, True, False, False)
    """
    inside = _INSIDE.search(stop[:200])
    return any(_ends(_plain(text)) for text in (stop[:200], *(inside.groups() if inside else ())))


def _ends(reason: str) -> bool:
    return reason in LIMITS or _MADE.fullmatch(reason) is not None


def _plain(text: str) -> str:
    """In lower case, words with _ between, without an enumeration's name before it."""
    words = _BETWEEN.sub("_", _CAMEL.sub("_", text.strip(" \t\r\n.!"))).lower()
    while prefix := _PREFIX.match(words):
        words = words[prefix.end() :]
    return words
