"""Text that spells its turns out, as Anthropic's hh-rlhf does: `Human: ...` and `Assistant: ...` after blank lines."""

from __future__ import annotations

import re
from typing import Any

_SPEAKERS = {"Human": "user", "Assistant": "assistant"}
_SPOKEN = re.compile(r"(?:\A\s*|\r?\n\r?\n)(Human|Assistant):[^\S\r\n]?")
_DIALOGUE = re.compile(r"\s*Human:.*?\n\r?\nAssistant:", re.S)


def is_dialogue(value: Any) -> bool:
    """Is it text that spells out its turns, `Human: ...` and `Assistant: ...` after blank lines?"""
    return isinstance(value, str) and _DIALOGUE.match(value) is not None


def spelt_out(text: str) -> list[dict[str, Any]]:
    """Its turns, as messages.

    >>> spelt_out("\\n\\nHuman: Where?\\n\\nAssistant: There.")
    [{'role': 'user', 'content': 'Where?'}, {'role': 'assistant', 'content': 'There.'}]
    """
    said = _SPOKEN.split(text)[1:]
    return [
        {"role": _SPEAKERS[who], "content": words} for who, words in zip(said[::2], said[1::2], strict=True)
    ]
