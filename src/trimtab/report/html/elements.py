"""Small pieces of HTML that every part of the report is made of. Every value passes `escape`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as _html_escape
from typing import Any

Run = dict[str, Any]

_ICONS = {  # one shape each: never colour alone
    "healthy": '<circle cx="10" cy="10" r="8"/><path d="M6 10.5l2.8 2.8L14.2 7.5"/>',
    "alarms": '<path d="M10 2.5L18.5 17.5H1.5Z"/><path d="M10 8v4.2M10 14.6v.4"/>',
    "unhealthy": '<path d="M6.5 1.5h7l5 5v7l-5 5h-7l-5-5v-7Z"/><path d="M7 7l6 6M13 7l-6 6"/>',
    "blind": '<path d="M2 10c4.5-6.5 11.5-6.5 16 0c-4.5 6.5-11.5 6.5-16 0Z"/><path d="M3.5 17L16.5 3"/>',
    "not judged yet": '<path d="M5 2.5h10M5 17.5h10M6 2.5c0 5 8 10 8 15M14 2.5c0 5-8 10-8 15"/>',
    "critical": '<path d="M6.5 1.5h7l5 5v7l-5 5h-7l-5-5v-7Z"/><path d="M10 5.5v5.5M10 14v.4"/>',
    "warning": '<path d="M10 2.5L18.5 17.5H1.5Z"/><path d="M10 8v4.2M10 14.6v.4"/>',
    "info": '<circle cx="10" cy="10" r="8"/><path d="M10 9v5M10 6v.4"/>',
}


def escape(value: object) -> str:
    """Escape for element content and quoted attributes; None, a number that was not finite, is a dash."""
    return "–" if value is None else _html_escape(str(value), quote=True)


def label(run: int, alarm: int, num_runs: int) -> str:
    """The alarm's number in the list and on every chart: 1, 2, ... or A1, B1, ... when there are several runs."""
    return f"{letter(run)}{alarm + 1}" if num_runs > 1 else str(alarm + 1)


def letter(run: int) -> str:
    """A, B, ..., Z, R27, R28, ..."""
    return chr(ord("A") + run) if run < 26 else f"R{run + 1}·"


def integer(value: int | None) -> str:
    """With thousands separators; a dash where there is none.

    >>> integer(12288), integer(None)
    ('12,288', '–')
    """
    return "–" if value is None else escape(f"{value:,}")


def icon(kind: str) -> str:
    """A drawn symbol, so that it looks the same whatever fonts the reader has; the word always stands beside it."""
    return f'<svg class="icon" viewBox="0 0 20 20" aria-hidden="true">{_ICONS[kind]}</svg>'


def run_name(run: Run, index: int, count: int) -> str:
    """The run's name, with its letter when there are several."""
    mark = f'<span class="letter">{letter(index)}</span> ' if count > 1 else ""
    return (
        f'{mark}<bdi title="{escape(run.get("path") or "")}">{escape(run.get("name") or "unnamed run")}</bdi>'
    )


def prefix(index: int, count: int) -> str:
    """The run's letter as a small mark at the start of a line."""
    return f'<span class="letter">{letter(index)}</span> ' if count > 1 else ""


def heading(run: Run, index: int, count: int) -> str:
    """A run's name above its part of a section; nothing when the page has one run."""
    return f'<h3 class="run">{run_name(run, index, count)}</h3>' if count > 1 else ""


def section(anchor: str, title: str, body: str, lede: str = "") -> str:
    """A titled section; `title`, `lede` and `body` are HTML already."""
    lead = f'<p class="lede">{lede}</p>' if lede else ""
    return (
        f'<section id="{anchor}" aria-labelledby="h-{anchor}"><div class="head"><h2 id="h-{anchor}">{title}</h2></div>'
        f"{lead}{body}</section>"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numeric_from: int = 1) -> str:
    """A table of HTML cells; columns from `numeric_from` on are set right-aligned."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=num' if i >= numeric_from else ''}>{cell}</{tag}>" for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", columns)}</tr></thead><tbody>{body}</tbody></table></div>'
