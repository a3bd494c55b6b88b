"""Which files of a folder are logs of their own: an agent may write one run to many files, or twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from trimtab.traces.core.read_report import ReadReport

_EVENT = re.compile(r"(?:event-)?(\d+)(?:-[0-9a-fA-F-]{8,})?\.json")
_NATIVE = "logs of which Harbor made the trajectory beside them, left out"


def distinct_logs(files: Sequence[str], report: ReadReport) -> list[str]:
    """Return the files to read.

    Left out are agents' own logs in `TRIAL/agent/sessions`, if the trajectory that Harbor made of them is
    among the files; they are counted. Of OpenHands' conversations with a file for each event the first
    stands for all.

    >>> files = ["a/trajectory.json", "a/sessions/s.jsonl", "c/events/1.json", "c/events/0.json"]
    >>> distinct_logs(files, ReadReport())
    ['a/trajectory.json', 'c/events/0.json']
    """
    folders = {str(Path(file).parent) for file in files if Path(file).name == "trajectory.json"}
    own = [file for file in files if not _is_native(Path(file), folders)] if folders else list(files)
    if len(own) < len(files):
        report.note(_NATIVE, len(files) - len(own))
    first: dict[str, str] = {}
    for file in filter(is_event_file, own):
        folder = str(Path(file).parent)
        first[folder] = min(first.get(folder, file), file, key=event_number)
    return [file for file in own if not is_event_file(file) or first[str(Path(file).parent)] == file]


def is_event_file(file: str) -> bool:
    """Does the file hold one event, among others of a conversation?

    >>> is_event_file("c/events/event-00003-d2861116-5a6f-4cc4.json"), is_event_file("a.json")
    (True, False)
    """
    return Path(file).parent.name == "events" and _EVENT.fullmatch(Path(file).name) is not None


def event_number(file: str) -> int:
    """The place of an event's file among the others."""
    match = _EVENT.fullmatch(Path(file).name)
    return int(match[1]) if match else -1


def _is_native(path: Path, folders: set[str]) -> bool:
    return any(parent.name == "sessions" and str(parent.parent) in folders for parent in path.parents)
