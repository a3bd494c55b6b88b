"""What happened while logs were read: every line that was left out, where and why, and every repair,
counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trimtab.errors import TraceError
from trimtab.traces.core.episode import Call
from trimtab.traces.core.pattern_search import matches_any

MAX_KEPT = 100
"""Malformed lines of which file, line and reason are kept; all are counted."""

_MAX_NAMES, _MAX_CHARS = 8, 80
UNREAD_SUCCESS = "successes that are neither true nor false, ignored"
UNREAD_REWARD = "rewards that are no number, ignored"


class Problem(NamedTuple):
    """A line that was left out. `line` counts from 1; in a document that is one JSON value it is the record's
    number."""

    file: str
    line: int
    reason: str


class Record(NamedTuple):
    """A JSON value and where it stood."""

    file: str
    line: int
    value: Any

    @property
    def source(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


@dataclass
class ReadReport:
    """`notes`: what was repaired or ignored without loss of a record, by reason. With `strict` the first
    malformed line raises. `unread_messages`: of `num_messages` those, or calls in them, of which the words or
    the speaker could not be read, by reason. `missed`: of `mapped` records that were read by `--map`, how
    many had nothing at a path. `error_patterns`: the user's own, of results that report an error. `state`:
    what a reader remembers over all files, under the name of its format. `cut`: files of which the end was
    not read, from which line on and why. `used`: files, resolved, that describe the episodes of others.
    `progress` is called with the bytes of each piece read."""

    strict: bool = False
    formats: dict[str, str] = field(default_factory=dict)  # file -> format
    num_lines: int = 0
    num_malformed: int = 0
    num_episodes: int = 0
    num_messages: int = 0
    problems: list[Problem] = field(default_factory=list)
    cut: list[Problem] = field(default_factory=list)
    unread_messages: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    mapped: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    error_patterns: tuple[re.Pattern[str], ...] = ()
    state: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    once: set[str] = field(default_factory=set, repr=False, compare=False)
    listed: set[str] = field(default_factory=set, repr=False, compare=False)
    used: set[str] = field(default_factory=set, repr=False, compare=False)
    progress: Callable[[int], None] | None = field(default=None, repr=False, compare=False)

    def malformed(self, file: str, line: int, reason: str) -> None:
        """Count a line that cannot be used. TraceError under `strict`."""
        self.num_malformed += 1
        if len(self.problems) < MAX_KEPT:
            # lines are parsed a few ahead of their reader, which may refuse an earlier one
            index = len(self.problems)
            while index and self.problems[index - 1].file == file and self.problems[index - 1].line > line:
                index -= 1
            self.problems.insert(index, Problem(file, line, reason))
        if self.strict:
            raise TraceError(f"{file}:{line}: {reason}; without --strict such lines are counted and skipped")

    def cut_off(self, file: str, line: int, reason: str) -> None:
        """Count a file that cannot be read on from this line, which is malformed. TraceError under
        `strict`."""
        self.cut.append(Problem(file, line, reason))
        self.malformed(file, line, reason)

    def note(self, reason: str, count: int = 1) -> None:
        """Count a repair or something ignored."""
        self.notes[reason] += count

    def note_once(self, reason: str) -> None:
        """Note what holds of the logs as a whole, however many files say it."""
        self.notes[reason] = 1
        self.once.add(reason)

    def note_each(self, what: str, which: str, count: int = 1) -> str:
        """Count something under each of its names; what comes after the first few is gathered, as logs may
        have a name for each message. Returns the reason under which it was counted."""
        self.listed.add(what)
        reason = f"{what}: {which[:_MAX_CHARS] or '(none)'}"
        full = sum(name.startswith(f"{what}: ") for name in self.notes) >= _MAX_NAMES
        if full and reason not in self.notes:
            reason = f"{what}: (others)"
        self.note(reason, count)
        return reason

    def unread_message(self, what: str, keys: Iterable[Any] | None = None) -> None:
        """Count a message that cannot be read, under the names of its keys."""
        if keys is not None:
            names = ", ".join(sorted(str(key)[:20] for key in keys)[:8])
            what = self.note_each(f"{what}; their keys", names)
        else:
            self.note(what)
        self.unread_messages[what] += 1

    def unread(self, what: str, raw: Any, read: Any) -> None:
        """Count a value that is there and was not read."""
        if raw is not None and read is None:
            self.note(what)

    def merge(self, other: ReadReport) -> None:
        """Add the report of what was read next. A reader's state has a `merge` of its own, which may withdraw
        notes."""
        for name, state in other.state.items():
            if name in self.state and hasattr(state, "merge"):
                self.state[name].merge(state, self.notes, other.notes)
            else:
                self.state[name] = state
        self.listed |= other.listed
        for reason, count in other.notes.items():
            if reason in other.once:
                self.note_once(reason)
                continue
            what, separator, which = reason.partition(": ")
            if separator and what in self.listed:
                self.note_each(what, which, count)
            else:
                self.note(reason, count)
        self.formats |= other.formats
        self.num_lines += other.num_lines
        self.num_malformed += other.num_malformed
        self.num_episodes += other.num_episodes
        self.num_messages += other.num_messages
        self.unread_messages.update(other.unread_messages)
        self.problems = (self.problems + other.problems)[:MAX_KEPT]
        self.cut += other.cut
        self.mapped += other.mapped
        self.missed.update(other.missed)
        self.used |= other.used

    def mark_errors(self, calls: Iterable[Call]) -> None:
        """Calls that failed by the user's patterns; what the log or our own patterns said stays."""
        for call in calls if self.error_patterns else ():
            text = call.result or ""
            if not call.error and matches_any(self.error_patterns, text):
                call.error, call.error_from = text, "text"
                self.note("calls that failed by --error-pattern")
