"""The typed fields of a rule file: known names only, words, choices and numbers, each error with its line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any

from trimtab.detect.user_rules.yaml_nodes import At


def fields(at: At, what: str, known: Sequence[str], needed: Sequence[str], of: str = "") -> None:
    """A mapping with known fields only, and with those that it needs."""
    if not isinstance(at.value, dict):
        raise at.error(what, f"is no mapping; give {', '.join(needed)}")
    prefix = "" if what == "rule" else f"{what}."
    for name in at.value:
        if name not in known:
            raise at.error(f"{prefix}{name}"[:60], f"unknown field{of}{close(name, known)}", name)
    for name in needed:
        if name not in at.value:
            raise at.error(
                f"{prefix}{name}", f"is missing; {what if prefix else 'each rule'} needs {', '.join(needed)}"
            )


def choice(at: At, name: str, known: Sequence[str], default: str = "", label: str = "") -> str:
    """One of the words known; `label` is the field's full name."""
    held = at.value.get(name)
    if held is None:
        return default
    if not isinstance(held.value, str) or held.value not in known:
        raise held.error(label or name, f"{held.value!r:.40} is unknown{close(held.value, known)}")
    return held.value


def text(at: At, name: str) -> str:
    """A line of words; empty where there is none."""
    held = at.value.get(name)
    if held is None:
        return ""
    if not isinstance(held.value, str) or not held.value.strip() or len(held.value) > 500:
        raise held.error(name, "is no text of 1 to 500 characters; quote it")
    return " ".join(held.value.split())


def close(name: Any, known: Iterable[str]) -> str:
    """The closest known name, or all of them."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def is_number(value: Any) -> bool:
    """A finite number, no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
