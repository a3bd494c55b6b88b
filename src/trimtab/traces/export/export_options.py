"""Kinds of training data, and the options of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import TraceError

KINDS = ("sft", "dpo", "kto", "grpo", "steps")
_KINDS_OF = {
    **dict.fromkeys(("per_task", "match_length", "same_prompt"), ("dpo",)),
    "keep_tool_faults": ("sft", "dpo", "kto"),
    "keep_unscored": ("sft",),
}
"""Options, and the kinds they apply to."""


@dataclass(frozen=True)
class ExportOptions:
    """How logs are read, and what is exported of them."""

    format: str | None = None
    """Format of the logs, detected by default; `mapping` has the JSON paths of our fields for an unknown
    one."""
    mapping: Mapping[str, str] | None = None
    strict: bool = False
    """Stop at the first malformed line."""
    error_patterns: tuple[str, ...] = ()
    """Regular expressions of tool results that report an error."""
    tools: str | Path | None = None
    """JSON file with the tool schemas of episodes whose log has none."""
    solved_at: float | None = None
    """Reward from which a task counts as solved."""
    per_task: int | None = None
    """Largest number of pairs of a task (dpo), 4 by default."""
    match_length: bool = False
    """Pair attempts of similar size first (dpo)."""
    same_prompt: bool = False
    """Pair only attempts that began with the same words (dpo)."""
    keep_tool_faults: bool = False
    """Keep failed episodes in which a tool was at fault, though they teach nothing about the policy."""
    keep_unscored: bool = False
    """Keep episodes without an outcome (sft)."""

    def check(self, kind: str) -> None:
        """Raise TraceError for an unknown kind, or for an option that does not apply to it."""
        if kind not in KINDS:
            raise TraceError(f"unknown kind {kind!r} of training data; one of {', '.join(KINDS)}")
        for name, kinds in _KINDS_OF.items():
            if getattr(self, name) and kind not in kinds:
                option, others = name.replace("_", "-"), " and ".join(kinds)
                raise TraceError(f"--{option} changes nothing of {kind}, only of {others}; leave it out")
