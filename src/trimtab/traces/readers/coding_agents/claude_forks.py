"""Lines that a session of Claude Code has from another: `--fork-session`, and `--resume` of older versions.

The copy is a file of its own in the folder. It has the lines under a new session id, but with the `uuid` that
they had. So of files that begin with the same line, one has what the others copied.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from trimtab.traces.core.coerce import as_label, as_time
from trimtab.traces.core.json_text import BadJson, parse_json

_HEAD_LINES = 60  # within which the first line of a conversation stands


def copied_lines(file: str) -> set[str]:
    """Return the uuids of the lines that the file has from older sessions of its folder.

    Args:
        file: a session's log; one that cannot be read has copied nothing.
    """
    path = Path(file)
    try:
        families = _families(str(path.parent), path.parent.stat().st_mtime_ns)
    except OSError:
        return set()
    relatives = next((names for names in families if path.name in names), ())
    own = _lines(path) if relatives else {}
    copied: set[str] = set()
    for name in relatives:
        other = _lines(path.parent / name)
        if (_began(other, own), name) < (_began(own, other), path.name):
            copied |= own.keys() & other.keys()
    return copied


def _began(lines: Mapping[str, float], others: Mapping[str, float]) -> float:
    """When a session went its own way; the one that never did was there first."""
    return min((time for uuid, time in lines.items() if uuid not in others), default=-math.inf)


@functools.lru_cache(maxsize=64)
def _families(folder: str, changed: int) -> list[tuple[str, ...]]:
    """The sessions of a folder that begin with one line, where they are several."""
    del changed
    names: dict[str, list[str]] = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        for root, _ in islice(_uuids(path, _HEAD_LINES), 1):
            names.setdefault(root, []).append(path.name)
    return [tuple(family) for family in names.values() if len(family) > 1]


def _lines(path: Path) -> Mapping[str, float]:
    """The uuids of a file's lines with their times."""
    try:
        about = path.stat()
    except OSError:
        return {}
    return _lines_at(path, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=64)
def _lines_at(path: Path, changed: int, size: int) -> Mapping[str, float]:
    del changed, size
    return dict(_uuids(path, None))


def _uuids(path: Path, max_lines: int | None) -> Iterator[tuple[str, float]]:
    try:
        with path.open("rb") as file:
            for line in islice(file, max_lines):
                try:
                    value = parse_json(line)
                except BadJson:
                    continue
                uuid = as_label(value.get("uuid")) if isinstance(value, dict) else None
                if uuid is not None:
                    yield uuid, as_time(value.get("timestamp")) or math.inf
    except OSError:
        return
