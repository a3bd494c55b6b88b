"""What the terminal view says of one run, in words: its name, verdict, age and warnings, each an inert
cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.report.alarms import severity_word
from trimtab.report.control_characters import escape_controls
from trimtab.report.terminal.sparkline import span
from trimtab.typing import Json

STALE_S = 180.0  # default, not calibrated: a step of a large agent run takes one to two minutes
_ALARM_COLUMNS = (  # name, least and most width
    ("step", 5, 9), ("severity", 8, 8), ("averages", 8, 8), ("slice", 9, 24), ("rule", 12, 28),
    ("run", 8, 20),
)  # fmt: skip
_MAX_ALARMS = 8
_VERDICTS = {
    "healthy": ("✓", "green"),
    "alarms": ("▲", "bold yellow"),
    "unhealthy": ("✗", "bold red"),
    "blind": ("?", "bold magenta"),
    "not judged yet": ("…", "dim"),
}
_SEVERITIES = {"critical": "bold red", "warning": "yellow", "info": "dim"}


def name_of(state: Json) -> str:
    """The run's name."""
    return escape_controls(state.get("name") or "unnamed run")


def verdict_text(state: Json) -> Text:
    """The verdict as mark and word: never colour alone."""
    word = state.get("verdict") or "not judged yet"
    mark, style = _VERDICTS.get(word, ("?", "bold magenta"))
    return Text(f"{mark} {escape_controls(word)}", style)


def step_text(state: Json) -> Text:
    """The last step; a dash before the first."""
    step = state.get("step")
    return Text("–" if step is None or step < 0 else f"{step:,}")


def age_text(state: Json) -> Text:
    """How long ago the last step came, loud when that is too long."""
    age = state.get("updated_s")
    if age is None or not math.isfinite(age):
        return Text("no step yet", "dim")
    return Text(f"{span(age)} ago", "bold yellow" if age > STALE_S else "dim")


def history_of(state: Json, key: str) -> list[float]:
    """A short history with what was not finite as nan."""
    values = (state.get("history") or {}).get(key) or []
    return [math.nan if value is None else float(value) for value in values]


def warnings_of(state: Json) -> list[str]:
    """What must not be overlooked: failures of the watch itself, silence, too little seen."""
    warnings = [f"the watch itself: {escape_controls(note)}" for note in state.get("notes") or []]
    age, ending = state.get("updated_s"), state.get("ending") or {}
    ended = ending.get("how") in ("finished", "exited")
    if ending.get("how") in ("exception", "signal", "vanished"):
        warnings.append(f"run {escape_controls(ending.get('text') or '')}")
    elif age is not None and math.isfinite(age) and age > STALE_S and not ended:
        warnings.append(f"no new step for {span(age)}")
    if state.get("verdict") == "not judged yet":
        warnings.append(f"not judged yet: {escape_controls(state.get('reason') or 'too little seen')}")
    return warnings


def warning_text(state: Json, text: str) -> Text:
    """One warning, with the run it is about."""
    return Text.assemble(("! ", "bold yellow"), (name_of(state), "bold"), f"  {text}")


def unseen_words(item: object) -> str:
    """One thing that was not observed, and why."""
    return escape_controls(f"{item.get('what')}: {item.get('why')}" if isinstance(item, Mapping) else item)


def alarm_list(states: Sequence[Json]) -> Iterator[RenderableType]:
    """The newest alarms of all runs as a table, then how many are not shown; nothing when there is none."""
    fired = [(alarm, state) for state in states for alarm in state.get("alarms") or []]
    fired.sort(key=lambda pair: pair[0]["step"], reverse=True)
    if not fired:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name, min_width, max_width in _ALARM_COLUMNS:
        side: JustifyMethod = "right" if name == "step" else "left"
        table.add_column(
            name, min_width=min_width, max_width=max_width, overflow="ellipsis", no_wrap=True, justify=side
        )
    for alarm, state in fired[:_MAX_ALARMS]:
        style = _SEVERITIES.get(alarm["severity"], "yellow")
        severity = Text(escape_controls(severity_word(alarm["severity"])), style)
        calm = "no alarm" if alarm.get("hidden") else ""
        words = (escape_controls(alarm["slice"]), escape_controls(alarm["rule"]), name_of(state))
        table.add_row(Text(f"{alarm['step']:,}"), severity, Text(calm), *map(Text, words))
    yield Text("\nalarms and notes, newest first", "bold")
    yield table
    if len(fired) > _MAX_ALARMS:
        yield Text(f"and {len(fired) - _MAX_ALARMS} earlier", "dim")
