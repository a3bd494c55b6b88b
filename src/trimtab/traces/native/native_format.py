"""Our own JSONL: one episode a line, `{"trimtab": 1, "id": ..., "turns": [...]}`, NaN and infinity written as
such."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from trimtab.errors import TraceError
from trimtab.traces.core.episode import Episode
from trimtab.traces.core.read_report import ReadReport, Record

VERSION = 1


def dump_episode(episode: Episode) -> str:
    """One line of our format, without its end.

    >>> dump_episode(Episode(id="a", reward=float("nan")))
    '{"trimtab": 1, "id": "a", "reward": NaN}'
    """
    return json.dumps({"trimtab": VERSION, **msgspec.to_builtins(episode)})


def is_own(value: dict[str, Any]) -> bool:
    """Is it a line of our format?"""
    return "trimtab" in value and "id" in value


def read_own(records: Iterable[Record], report: ReadReport) -> Iterator[Episode]:
    """Episodes of our own lines.

    What does not fit the record is malformed; fields we do not know are ignored.
    """
    for record in records:
        version = record.value.get("trimtab") if isinstance(record.value, dict) else None
        if version is None:
            report.malformed(record.file, record.line, "no `trimtab`: no line of our own format")
            continue
        if isinstance(version, int) and version > VERSION:
            raise TraceError(
                f"{record.source}: written by a newer trimtab (format {version}); upgrade to read it"
            )
        try:
            episode = msgspec.convert(record.value, Episode)
        except (msgspec.ValidationError, OverflowError, UnicodeError) as error:
            report.malformed(record.file, record.line, str(error))
            continue
        episode.source = episode.source or record.source
        report.num_messages += len(episode.turns)
        for turn, raw in zip(episode.turns, record.value.get("turns", ()), strict=True):
            if not turn.role.strip():
                report.unread_message("turns without a role, kept", raw)
        for call in episode.calls:
            if call.error and not call.error_from:
                call.error_from = "log"
        yield episode
