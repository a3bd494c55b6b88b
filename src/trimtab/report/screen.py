"""A diagnosis on one screen: the sentence, the alarms, what was not observed and what that costs, the next
command."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.control_characters import escape_controls
from trimtab.traces.core.plural import counted

MAX_LINES = 25
WIDTH = 100
"""Columns of a line that does not go to a terminal."""
_NARROWEST, _WIDEST = 60, 160
_MAX_NAMES, _MAX_WORD = 12, 400
_MAX_HEADLINE, _MAX_FACTS, _MAX_UNSEEN, _MAX_LEAD = 3, 6, 6, 2  # lines


@dataclass(frozen=True)
class Item:
    """One alarm of a screen; `advice` gets a line of its own where there is room."""

    text: str
    advice: str


@dataclass(frozen=True)
class Screen:
    """The parts of a diagnosis in the order they are printed."""

    headline: str
    facts: Sequence[str]  # what was read, and failures of the monitor
    counts: str  # of alarms and notes
    alarms: Sequence[Item]  # by severity, then step
    notes: str  # the notes in one line; empty without any
    unseen: Sequence[str]  # what was not observed and what that costs
    next_command: Sequence[str]
    lead: Sequence[str] = ()  # before the headline: how a run ended that ended badly

    def lines(self) -> list[str]:
        """Return at most `MAX_LINES` lines, safe to print, as wide as the screen; the command is not cut."""
        head = [line for one in self.lead for line in _wrap(one, _MAX_LEAD)]
        head += _wrap(self.headline, _MAX_HEADLINE)
        head += [cut(f"  {fact}") for fact in self.facts[:_MAX_FACTS]]
        tail = ["", *_command(self.next_command)]
        if self.unseen:
            tail = ["", "not observed (--verbose says why):", *_some(self.unseen, _MAX_UNSEEN, "more"), *tail]
        if self.notes:
            tail = [cut(self.notes), *tail]
        body: list[str] = []
        if self.alarms:
            room = MAX_LINES - len(head) - len(tail) - 2
            body = ["", cut(f"{self.counts}:"), *self._alarms(room)]
        elif self.notes:
            body = [""]
        return [*head, *body, *tail]

    def _alarms(self, room: int) -> list[str]:
        """One line an alarm; from the top, as far as there is room, its numbers in full and its advice."""
        if len(self.alarms) > room:
            return _some([alarm.text for alarm in self.alarms], room, "more alarms")
        lines: list[str] = []
        for i, alarm in enumerate(self.alarms):
            spare = room - len(lines) - (len(self.alarms) - i - 1)
            whole = _wrap(alarm.text, 2, "  ", "      ")
            short = [cut(f"  {alarm.text}")]
            advice = cut(f"      do: {alarm.advice}")
            lines += [*whole, advice] if len(whole) < spare else whole if len(whole) <= spare else short
        return lines


def width() -> int:
    """Return the columns of a line: the terminal's, or `WIDTH` where the output does not go to one."""
    if not sys.stdout.isatty():
        return WIDTH
    return min(max(shutil.get_terminal_size((WIDTH, MAX_LINES)).columns, _NARROWEST), _WIDEST)


def listing(names: Sequence[str], room: int = _MAX_NAMES) -> str:
    """Return the first names, and how many more the JSON form has.

    >>> listing(["a", "b"]), listing(["a", "b", "c"], 2), listing([])
    ('a, b', 'a, b and 1 more (--json)', 'none')
    """
    more = f" and {len(names) - room} more (--json)" if len(names) > room else ""
    return ", ".join(names[:room]) + more or "none"


def sections(parts: Mapping[str, Sequence[str]], room: int = MAX_LINES) -> list[str]:
    """Return each part that has lines under its title, with at most `room` lines."""
    lines: list[str] = []
    for title, part in parts.items():
        if part:
            more = [f"  and {len(part) - room} more lines (--json)"] if len(part) > room else []
            lines += ["", f"{title}:", *(f"  {line}" for line in part[:room]), *more]
    return lines


def headline_text(headline: str) -> str:
    """Return as much of a headline as a screen shows."""
    return " ".join(_wrap(headline, _MAX_HEADLINE))


def alarm_items(alarms: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the alarms (`alarm_payload`) by severity, then step; of one rule in one slice only the latest,
    counted."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for alarm in sorted(alarms, key=lambda a: (a["severity"] != "critical", a["step"])):
        if alarm["severity"] != "info":
            groups.setdefault((alarm["rule"], alarm["slice"]), []).append(alarm)
    items = []
    for group in groups.values():
        last = max(group, key=lambda alarm: alarm["step"])
        times = f" ({len(group)} times, last at {last['step']})" if len(group) > 1 else ""
        state = "" if last["cleared"] is None else f", cleared at {last['cleared']}"
        where = "" if last["slice"] == "all" else f" in {last['slice']}"
        head = f"[{group[0]['severity']}] step {group[0]['step']}{times} {last['rule']}{where}{state}"
        items.append(Item(f"{head}: {last['what']}", last["advice"]))
    return items


def note_line(alarms: Sequence[Mapping[str, Any]]) -> str:
    """Return the notes in one line; empty without any."""
    notes = [alarm for alarm in alarms if alarm["severity"] == "info"]
    names = dict.fromkeys(f"{note['rule']} at step {note['step']}" for note in notes)
    return f"{counted(len(notes), 'note')}: {', '.join(names)}" if notes else ""


def source_line(facts: str, path: str) -> str:
    """Return what was read and from where; of a long path the end.

    >>> source_line("2 rows", "runs/" + "x" * 200 + "/log.jsonl")[-20:]
    'xxxxxxxxxx/log.jsonl'
    """
    path, room = escape_controls(path), max(20, width() - 5 - len(facts))
    return f"{facts}: {path if _columns(path) <= room else '...' + path[3 - room :]}"


def _command(words: Sequence[str]) -> list[str]:
    """Return the command, on two lines where it is too long; whole, so that it can be pasted.

    LONG_NAME stands for an argument that nobody could paste.
    """
    words = [word if escape_controls(word) == word[:_MAX_WORD] else "LONG_NAME" for word in words]
    line = f"next: {shlex.join(words)}"
    if _columns(line) <= width():
        return [line]
    longest = words.index(max(words, key=len))
    return [f"next: {shlex.join(words[:longest])} \\", f"      {shlex.join(words[longest:])}"]


def cut(text: str, columns: int = 0) -> str:
    """Return one line of at most `columns`, else of the screen's, cut at a word where it is longer.

    Control characters are shown.

    >>> cut("one two three", 9), cut("ok"), cut("界界界界", 7)
    ('one...', 'ok', '界界...')
    """
    text, columns = escape_controls(text).rstrip(), columns or width()
    if _columns(text) <= columns:
        return text
    while _columns(text) > columns - 3:
        text = text[: len(text) - max(1, (_columns(text) - columns + 3) // 2)]
    head, _, last = text.rpartition(" ")
    return f"{head.rstrip() if len(last) < 24 and head.strip() else text}..."


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _wrap(text: str, max_lines: int, first: str = "", rest: str = "") -> list[str]:
    text = escape_controls(text)
    columns = width() if _columns(text) == len(text) else width() // 2
    wrapper = textwrap.TextWrapper(
        columns, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    lines = wrapper.wrap(text)
    if len(lines) > max_lines:
        last = " ".join(line.strip() for line in lines[max_lines - 1 :])
        lines = [*lines[: max_lines - 1], cut(rest + last, columns)]
    return lines


def _some(texts: Sequence[str], room: int, what: str) -> list[str]:
    """The first texts that fit into `room` lines, and how many more there are."""
    if len(texts) <= room:
        return [cut(f"  {text}") for text in texts]
    rest = f"  and {len(texts) - room + 1} {what}: --verbose"
    return [*(cut(f"  {text}") for text in texts[: room - 1]), rest]


def short(value: float) -> str:
    """Three significant digits, and k, M or G of what is larger.

    >>> short(0.38372), short(-2.0), short(12345.0), short(2.5e9), short(999.6)
    ('0.384', '-2', '12.3k', '2.5G', '1k')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def figure(value: float, sign: str = "-") -> str:
    """Three significant digits, or all of a larger whole number; `sign` as in a format.

    >>> figure(0.38372), figure(1300.4), figure(999.7, "+"), figure(-12.345)
    ('0.384', '1,300', '+1,000', '-12.3')
    """
    return f"{value:{sign},.0f}" if 999.5 <= abs(value) < math.inf else f"{value:{sign}.3g}"
