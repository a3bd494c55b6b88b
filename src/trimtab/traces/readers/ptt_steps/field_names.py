"""Names in a step log that nothing reads. A field with another name is not missed until its measure is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

TYPES = (
    "user_message", "assistant_message", "tool_call", "tool_result", "tool_parse_error", "episode_end",
    "other",
)  # fmt: skip

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
        "episode_id", "step", "timestamp", "type", "content", "tool", "args", "result", "error", "tokens",
        "latency_s", "duration_s", "metadata", "reward", "success", "total_tokens", "total_cost", "task_id",
        "task", "prompt_id", "group_id", "group", "stop_reason", "termination_reason",
    ]
)  # fmt: skip
"""What steps are read for."""

SAMPLE = 500
"""Lines of a file that are checked."""

_KINDS = {*TYPES, *KINDS, *KINDS.values(), "system", "developer"}
_MAX_NAMES = 8
_MAX_CHARS = 40


class StepNames:
    """Fields and kinds of the first steps of files that are none of ours."""

    def __init__(self) -> None:
        self._steps = 0
        self._fields: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._notes: list[str] = []

    def add(self, step: Mapping[str, Any], line: int) -> None:
        """Count the names of a step of a file's first lines."""
        if line > SAMPLE:
            return
        odd = [name for name, value in step.items() if name not in FIELDS and value is not None]
        self._steps += bool(odd)
        self._fields.update(odd)
        if step.get("type") not in _KINDS:
            self._kinds[str(step.get("type"))] += 1

    def merge(self, other: StepNames, notes: Counter[str], others: Counter[str]) -> None:
        """Add what another part of the logs holds, and withdraw its notes from `others`."""
        for note in other._notes:
            del others[note]
        self._steps += other._steps
        self._fields.update(other._fields)
        self._kinds.update(other._kinds)
        self.write_notes(notes)

    def write_notes(self, notes: Counter[str]) -> None:
        """Write notes of the names, the most frequent first, in place of the earlier ones."""
        for note in self._notes:
            del notes[note]
        self._notes = []
        for what, counts, count in (
            ("steps with fields that nothing reads", self._fields, self._steps),
            (
                "steps of a kind that is none of ours, kept as turns of that role",
                self._kinds,
                self._kinds.total(),
            ),
        ):
            if counts:
                names = sorted(counts, key=lambda name: (-counts[name], name))
                shown = ", ".join(name[:_MAX_CHARS] for name in names[:_MAX_NAMES])
                more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
                self._notes.append(f"{what}, of a file's first {SAMPLE} lines: {shown}{more}")
                notes[self._notes[-1]] = count
