"""Values of a model or of a loop in a form that can be stored and read again.

The mistake it prevents: one tool name with a lone surrogate, or of 70,000 characters, ends measuring for the
whole process; a latency in words breaks the page that shows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_NAME = 128
"""Characters of a name (tool, source, metric, part of the reward): the rest is cut."""

MAX_TEXT = 16_384
"""Characters of any other text, such as an argument of a tool call or an error."""

_MAX_ITEMS, _MAX_DEPTH = 1_024, 8
_CUT = "\u2026"


def clean_text(raw: object, limit: int = MAX_TEXT) -> str:
    r"""Return text that encodes to UTF-8, of at most `limit` characters; None is empty.

    >>> clean_text("a\ud800"), clean_text("x" * 9, limit=4), clean_text(None), clean_text(7)
    ('a\\ud800', 'xxx…', '', '7')
    """
    try:
        text = raw if isinstance(raw, str) else "" if raw is None else str(raw)
    except ValueError:  # an integer of more digits than Python prints
        text = f"<{type(raw).__name__}>"
    if len(text) > limit:
        text = text[: limit - 1] + _CUT
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
        text = text if len(text) <= limit else text[: limit - 1] + _CUT
    return str(text)


def clean_name(raw: object) -> str:
    """Return a name of at most `MAX_NAME` characters that encodes to UTF-8."""
    return clean_text(raw, MAX_NAME)


@dataclass
class Door:
    """Cleans values and counts, by what they are, those it had to change."""

    changed: Counter[str] = field(default_factory=Counter)

    def text(self, what: str, raw: object, limit: int = MAX_TEXT) -> str:
        """Return `clean_text` of a value."""
        text = clean_text(raw, limit)
        self.changed[what] += text != raw
        return text

    def name(self, what: str, raw: object) -> str:
        """Return `clean_name` of a value."""
        return self.text(what, raw, MAX_NAME)

    def number(self, what: str, raw: object, default: float = math.nan) -> float:
        """Return a finite number of 0 or more; `default` for anything else. NaN is a value that is not
        known."""
        try:
            value = float(raw) if hasattr(raw, "__float__") and not isinstance(raw, bool) else -1.0
        except (TypeError, ValueError, OverflowError, RuntimeError):
            value = -1.0
        if math.isfinite(value) and value >= 0:
            return value
        self.changed[what] += not math.isnan(value)
        return default

    def step_fields(self, duration_s: object) -> dict[str, Any]:
        """Return the fields of a step's row: its duration, and what was changed at it, if anything."""
        seconds = None if duration_s is None else self.number("duration", duration_s)
        changed = {what: count for what, count in self.changed.items() if count}
        return {"duration_s": seconds} | ({"cleaned": changed} if changed else {})

    def json(self, what: str, raw: object, depth: int = 0) -> Any:
        """Return a JSON value: texts cut, integers beyond 64 bits as text, what JSON does not have as
        text."""
        if raw is None or isinstance(raw, (bool, float)):
            return raw
        if isinstance(raw, int) and abs(raw) < 2**63:
            return raw
        if isinstance(raw, (Mapping, list, tuple)) and depth < _MAX_DEPTH:
            self.changed[what] += len(raw) > _MAX_ITEMS
            if isinstance(raw, Mapping):
                items = list(raw.items())[:_MAX_ITEMS]
                return {self.name(what, key): self.json(what, item, depth + 1) for key, item in items}
            return [self.json(what, item, depth + 1) for item in raw[:_MAX_ITEMS]]
        return self.text(what, raw, MAX_TEXT if depth < _MAX_DEPTH else MAX_NAME)
