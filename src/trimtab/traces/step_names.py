"""Which names of a step log does nothing read? A field spelt otherwise is not missed until its measure is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from trimtab.traces.reading import ReadReport

__all__ = ["KINDS", "SAMPLE", "TYPES", "StepNames"]

TYPES = (
    "user_message",
    "assistant_message",
    "tool_call",
    "tool_result",
    "tool_parse_error",
    "episode_end",
    "other",
)

KINDS = {
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
    "system_message": "system",
    "developer_message": "developer",
}
"""Roles that stand where a kind of step should, and the other way round."""

FIELDS = frozenset(
    [
        "episode_id",
        "step",
        "timestamp",
        "type",
        "content",
        "tool",
        "args",
        "result",
        "error",
        "tokens",
        "latency_s",
        "duration_s",
        "metadata",
        "reward",
        "success",
        "total_tokens",
        "total_cost",
        "task_id",
        "task",
        "prompt_id",
        "group_id",
        "group",
        "stop_reason",
        "termination_reason",
    ]
)
"""What steps are read for."""

SAMPLE = 500
"""Lines of a file that are looked at."""

_KINDS = {*TYPES, *KINDS, *KINDS.values(), "system", "developer"}
_MAX_NAMES = 8
_MAX_CHARS = 40


class StepNames:
    """Fields and kinds of the first steps of a file that are none of ours."""

    def __init__(self) -> None:
        self._looked_at = 0
        self._fields: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()

    def look(self, step: Mapping[str, Any]) -> None:
        """At one step, while there are few."""
        if self._looked_at >= SAMPLE:
            return
        self._looked_at += 1
        self._fields.update(name for name in step if name not in FIELDS and step[name] is not None)
        if step.get("type") not in _KINDS:
            self._kinds[str(step.get("type"))] += 1

    def tell(self, report: ReadReport) -> None:
        """Note what was found, the most frequent first, with how many steps have any of it at most."""
        for what, found in (
            ("fields of steps that nothing reads", self._fields),
            ("steps of a kind that is none of ours, kept as turns of that role", self._kinds),
        ):
            if found:
                names = [name[:_MAX_CHARS] for name, _ in found.most_common(_MAX_NAMES)]
                more = f" and {len(found) - _MAX_NAMES} more" if len(found) > _MAX_NAMES else ""
                report.note(f"{what}, in the first {SAMPLE} lines: {', '.join(names)}{more}", found.total())
