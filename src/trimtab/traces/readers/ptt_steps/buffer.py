"""Lines of a step log, buffered by their episode's id until the file ends; then episodes in the order of
their first lines."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.traces.core.coerce import as_int, as_time
from trimtab.traces.core.read_report import ReadReport, Record
from trimtab.traces.readers.ptt_steps.restarts import BEGAN_AGAIN, COPY, Line, kind_of, runs_of

COPIES = "steps that are copies of another, dropped"


class EpisodeLines:
    """The steps of one episode, and where each stood."""

    def __init__(self, name: str, file: str) -> None:
        self.name, self.file = name, file
        self.events: list[Mapping[str, Any]] = []
        self.lines = array("q")

    def add(self, record: Record) -> None:
        """The next line of it, an object."""
        self.events.append(record.value)
        self.lines.append(record.line)

    @property
    def source(self) -> str:
        """`file:line` of the first."""
        return f"{self.file}:{self.lines[0]}"


def in_order(episodes: dict[str, EpisodeLines], report: ReadReport) -> Iterator[EpisodeLines]:
    """Episodes by their first lines, those that began anew after their end (`restarts`) apart.

    `episodes` is emptied. Copies that `restarts` drops, and episodes that it finds, are counted.
    """
    waiting = [one for whole in episodes.values() for one in _apart(whole, report)]
    episodes.clear()
    waiting.sort(key=lambda one: one.lines[0], reverse=True)
    while waiting:
        yield waiting.pop()


def _apart(whole: EpisodeLines, report: ReadReport) -> list[EpisodeLines]:
    end = next((i for i, event in enumerate(whole.events) if event["type"] == "episode_end"), None)
    if end is None or end == len(whole.events) - 1:
        return [whole]
    by_run: dict[int, EpisodeLines] = {}
    for index, run in enumerate(runs_of([_line(event) for event in whole.events])):
        if run == COPY:
            report.note(COPIES)
        else:
            one = by_run.setdefault(run, EpisodeLines(whole.name, whole.file))
            one.events.append(whole.events[index])
            one.lines.append(whole.lines[index])
    if len(by_run) > 1:
        report.note(BEGAN_AGAIN, len(by_run) - 1)
    return list(by_run.values())


def _line(event: Mapping[str, Any]) -> Line:
    step, kind = as_int(event.get("step")), kind_of(event["type"])
    end = kind == "episode_end"
    known = step is not None or (end and as_time(event.get("timestamp")) is not None)
    return Line(step, kind, end, known, json.dumps(event, sort_keys=True))
