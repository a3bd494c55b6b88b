"""Did an episode of a step log begin anew after its end?

A run that is started again and appended uses its ids again.

Lines of one id, in the file's order. Copies of an earlier line are dropped. Once its `episode_end` has come,
a line is *late* where its step number was not seen and lies below the highest one; it belongs to the episode
that ended. Any other line may begin another episode, and does where one of these shows that it is one:

- it has the episode's first step number again, and is of a kind that this number had, with other content;
- lines of two numbers had each their kind before, with other content;
- another `episode_end` comes, with other content, and before it such a line, copies from the first number on,
  or what a run may begin with: words of a
  user or system; where steps are numbered, a call, or an answer whose number goes on.

Results are no such lines: they come late by themselves. So an end that is corrected, a result that comes late
in a step of several, and steps that go on after the end change nothing. Copies of lines of earlier steps just
before the line that begins an episode are its own: a run may say the same at first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from trimtab.traces.readers.ptt_steps.field_names import KINDS

BEGAN_AGAIN = "episodes that began anew after their episode_end, read as episodes of their own"
COPY = -1
"""In place of a run: the line is a copy of another."""

_KINDS = ("tool_call", "tool_result", "tool_parse_error", "assistant_message", "episode_end", "user_message")


class Line(NamedTuple):
    """`kind`: as `kind_of`.

    `known`: has it a step number or, an end, a time, that tells a copy from another line of the same words?
    `content`: all of it, to be compared.
    """

    step: int | None
    kind: str
    end: bool
    known: bool
    content: Hashable


def kind_of(type: str) -> str:
    """The kind of a step as far as the columns tell it, too.

    >>> kind_of("assistant"), kind_of("developer"), kind_of("thought")
    ('assistant_message', 'system', 'other')
    """
    kind = KINDS.get(type, type)
    return kind if kind in _KINDS else "system" if kind in ("system", "developer") else "other"


def runs_of(lines: Sequence[Line]) -> list[int]:
    """(R,) which episode of the id each line is of, from 0; COPY for a copy.

    >>> first = [Line(i, "user_message", False, True, f"a{i}") for i in range(2)] + [Line(2, "episode_end",
    ...     True, True, "end")]
    >>> runs_of([*first, first[1], Line(0, "user_message", False, True, "b")])
    [0, 0, 0, -1, 1]
    """
    runs, run, number = list[int](), _Run(), 0
    seen: set[Hashable] = set()  # by any of them
    for index, line in enumerate(lines):
        if line.known and (line in run.seen or (run.ended and line in seen)):
            runs.append(COPY)
            if run.ended:
                run.copies.append(index)
            continue
        runs.append(number)
        seen.add(line)
        run.seen.add(line)
        if not run.ended or run.is_late(line):
            run.add(line)
            continue
        run.after.append(index)
        if run.is_over(line, lines):
            begun, run, number = run.begun(lines), _Run(), number + 1
            for at in begun:
                if not (lines[at].known and lines[at] in run.seen):
                    runs[at] = number
                    run.seen.add(lines[at])
                    run.add(lines[at])
    return runs


class _Run:
    """One episode's lines so far; since its end, indices of copies and of lines that may begin another."""

    def __init__(self) -> None:
        self.seen: set[Hashable] = set()
        self.copies: list[int] = []
        self.after: list[int] = []
        self.ended, self._again = False, set[int]()
        self._kinds: dict[int, set[str]] = {}
        self._first, self._last = math.inf, -math.inf

    def add(self, line: Line) -> None:
        """A line that is the episode's."""
        self.ended |= line.end
        if line.step is not None:
            self._kinds.setdefault(line.step, set()).add(line.kind)
            self._first, self._last = min(self._first, line.step), max(self._last, line.step)

    def is_late(self, line: Line) -> bool:
        """Does it fill a gap in the numbers?"""
        return line.step is not None and line.step not in self._kinds and line.step < self._last

    def is_over(self, line: Line, lines: Sequence[Line]) -> bool:
        """Does this line, the last of `after`, show that another episode has begun?"""
        result = line.kind == "tool_result"  # comes late by itself: no run begins with one
        if (
            line.step is not None
            and not line.end
            and not result
            and line.kind in self._kinds.get(line.step, ())
        ):
            self._again.add(line.step)
        many = self._first < self._last
        if many and (self._first in self._again or len(self._again) > 1):
            return True
        anew = many and any(lines[at].step == self._first for at in self.copies)
        return line.end and (
            anew or bool(many and self._again) or any(self._opens(lines[at], many) for at in self.after)
        )

    def _opens(self, line: Line, many: bool) -> bool:
        """May another run begin with it, rather than this one have its end corrected after a late line?

        Where steps have no numbers, or one for all, only what was asked says so.
        """
        if line.kind in ("user_message", "system"):
            return True
        if not many or line.end or line.kind == "tool_result":
            return False
        return line.kind == "tool_call" or (line.step is not None and line.step > self._last)

    def begun(self, lines: Sequence[Line]) -> list[int]:
        """Return the indices of the next episode's lines so far: from the first that may begin it, and copies
        of earlier steps before that."""
        start, head = self.after[0], lines[self.after[0]]
        own = [at for at in self.copies if at > start or _is_before(lines[at], head)]
        return sorted([*own, *self.after])


def _is_before(copy: Line, head: Line) -> bool:
    if copy.step is None or head.step is None:
        return False
    return copy.step < head.step or (copy.step == head.step and copy.kind != head.kind)
