"""Diagnose a log while it grows: a diagnosis whenever episodes have ended, a line for each, the whole text
when the findings change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from trimtab.measure.state.requirements import Requirements
from trimtab.report.control_characters import escape_controls
from trimtab.report.traces.trace_diagnosis import TraceDiagnosis, diagnose_table, trace_diagnosis
from trimtab.report.traces.trace_screen import trace_screen
from trimtab.traces.core.plural import counted
from trimtab.traces.core.read_report import ReadReport
from trimtab.traces.errors.patterns import compile_patterns
from trimtab.traces.follow import Follower
from trimtab.traces.table.required_files import RequiredFiles

_SHARE = 5  # the pause is at least so many times what the last diagnosis took


class Followed:
    """One state of the log: the diagnosis, how many episodes are new in it, how many have not ended.

    Of sessions, which are judged before they end, `new` counts lines.
    """

    def __init__(self, judged: TraceDiagnosis, new: int, follower: Follower, changed: bool) -> None:
        self.judged, self.new, self.changed = judged, new, changed
        self.still_open, self._is_session = len(follower.open), follower.is_session

    def lines(self) -> list[str]:
        """A line; after it the whole diagnosis when other rules fire than before."""
        verdict = self.judged.verdict
        clock = time.strftime("%H:%M:%S")
        seen = counted(self.judged.table.num_episodes, "episode")
        calls = counted(int(self.judged.table.counts["calls"].sum()), "call")
        count = f"{seen} (+{self.new:,}), {self.still_open:,} open"
        if self._is_session:
            count = f"{seen}, {calls} (+{counted(self.new, 'line')})"
        reason = "no rule fired" if verdict.word == "healthy" else verdict.reason
        line = escape_controls(f"{clock} {verdict.word.upper()}: {count}; {reason}")
        return [line, *trace_screen(trace_diagnosis(self.judged)), ""] if self.changed else [line]


def follow_traces(
    path: str | Path,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    strict: bool = False,
    declared: Requirements | None = None,
    every: float = 2.0,
    sleep: Callable[[float], None] = time.sleep,
    error_patterns: Iterable[str] = (),
) -> Iterator[Followed]:
    """The states of a growing log, without end; `every` in seconds. TraceError as
    `traces.follow.Follower`."""
    report = ReadReport(strict=strict, error_patterns=compile_patterns(error_patterns))
    declared = declared or Requirements()
    files = RequiredFiles(declared.required_files, declared.key_arguments)
    follower = Follower(path, report, format, mapping, files)
    rules: set[tuple[str, str]] | None = None
    while True:
        start, new = time.perf_counter(), follower.poll()
        table = follower.table() if new else None
        if table is not None and table.num_episodes:  # a session may begin with lines that nobody spoke
            judged = diagnose_table((follower.path,), table, follower.report, declared, start)
            now = {(f.rule.name, f.measured.reading.slice) for f in judged.findings}
            yield Followed(judged, new, follower, now != rules)
            rules = now
        sleep(max(every, _SHARE * (time.perf_counter() - start)))
