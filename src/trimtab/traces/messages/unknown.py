"""Messages that say nothing we know how to read: left out, and counted by what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.traces.core.coerce import as_label, first_of
from trimtab.traces.core.read_report import ReadReport

_SAID = (
    "content", "value", "parts", "tool_calls", "invalid_tool_calls", "function_call", "toolInvocations", "refusal", "audio",
    "reasoning_content", "reasoning", "thinking", "reasoning_details", "tool_call_id",
)  # fmt: skip
_ITEMS = "items of a kind that is none of ours, left out"
_KEYS = "messages with neither role nor content under a name we know, left out; their keys"


def says_nothing_known(message: Mapping[str, Any], report: ReadReport) -> bool:
    """Has it no role, and nothing said under any name we know? Counted by its type, else by its keys.

    >>> report = ReadReport()
    >>> says_nothing_known({"who": "ann", "said": "q"}, report), says_nothing_known({"content": "q"}, report)
    (True, False)
    >>> list(report.notes)
    ['messages with neither role nor content under a name we know, left out; their keys: said, who']
    """
    if message.get("content") is not None:
        return False
    role = as_label(message.get("role"))
    if (role and role.strip()) or first_of(message, *_SAID) is not None:
        return False
    kind = message.get("type")
    if isinstance(kind, str) and kind:
        report.note_each(_ITEMS, kind)
    else:
        report.note_each(_KEYS, ", ".join(sorted(str(key)[:20] for key in message)[:8]))
    return True
