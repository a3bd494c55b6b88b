"""Did a run end badly, and how: one word by what its record says of its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.report.run_ending import ending_of
from trimtab.runs.secret_masks import masked_text

Json = dict[str, Any]

OUT_OF_MEMORY, NOT_FINITE, STOPPED = "out of memory", "not finite", "stopped by the guard"
EXCEPTION, SIGNAL, KILLED = "exception", "signal", "killed"

_MEMORY = re.compile(
    r"^(?:[\w.]*OutOfMemoryError|MemoryError)\b|\bout of memory\b|can't allocate memory"
    r"|cannot allocate memory|unable to allocate",
    re.IGNORECASE,
)
_NONFINITE = re.compile(
    r"\b(?:nan|inf|infinity|infinite|non-?finite|not finite|not a number)\b|^FloatingPointError",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class BadEnding:
    """How a run ended that did not finish well."""

    kind: str  # out of memory, not finite, stopped by the guard, exception, signal, killed
    text: str  # one sentence
    rank: int
    session: int
    detail: Mapping[str, Any] = field(default_factory=dict)  # error, line, phase, signal, where recorded
    nonfinite: tuple[str, ...] = ()  # columns that are not finite at the last step

    @property
    def error(self) -> str:
        """Type and text of what was raised; empty where nothing was, or where it is not known."""
        return str(self.detail.get("error", ""))


def bad_ending(view: Any) -> BadEnding | None:
    """Return how a run ended badly; None where it finished, runs, or is not known to have ended.

    Args:
        view: a `RunView`.

    Returns:
        The ending of the rank that ended worst. A run without a record of its end on another machine counts
        as killed once it is silent for longer than its own cadence allows.
    """
    reader, steps = view.reader, view.steps
    ending = ending_of(reader, steps)
    how, text, rank = str(ending["how"]), str(ending["text"]), int(ending.get("rank", 0))
    if not reader.ranks:
        return None
    row = reader.end(rank) or {}
    detail = {name: masked_text(str(value)) for name, value in (row.get("detail") or {}).items()
              if isinstance(value, (str, int, float))}  # fmt: skip
    bad = tuple(sorted(steps[-1]["nonfinite"])) if steps else ()
    kind = _kind(how, detail, bad, view)
    if not kind:
        return None
    return BadEnding(kind, masked_text(text), rank, reader.session_of(rank), detail, bad)


def _kind(how: str, detail: Mapping[str, Any], bad: Sequence[str], view: Any) -> str:
    error = str(detail.get("error", ""))
    if how == "exception":
        if _MEMORY.search(error):
            return OUT_OF_MEMORY
        return NOT_FINITE if _NONFINITE.search(error) else EXCEPTION
    if how == "signal":
        return SIGNAL
    if how == "vanished" or (how == "unknown" and _is_silent(view)):
        return KILLED
    if how in ("finished", "exited"):
        if any(row["action"] == "stop" and not row["dry_run"] for row in view.actions[-8:]):
            return STOPPED
        return NOT_FINITE if bad else ""
    return ""


def _is_silent(view: Any) -> bool:
    return any("without an end" in text for text in view.integrity.gaps)
