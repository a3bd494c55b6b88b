"""The live terminal view: the state of one or more runs, the tail beside the average, alarms, and how old all
that is.

Every string of a state is hostile text: it enters as `rich.text.Text`, which parses no markup, and through
`inert`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.report.control_characters import escape_controls
from trimtab.report.terminal.cells import (
    age_text,
    alarm_list,
    history_of,
    name_of,
    step_text,
    unseen_words,
    verdict_text,
    warning_text,
    warnings_of,
)
from trimtab.report.terminal.sparkline import number, spark
from trimtab.typing import Json

_WIDE = 134  # columns from which one row holds a run
_LINES = (
    ("post_tool p99", "post_tool_p99", "dark_orange"),
    ("text p99", "text_p99", "dodger_blue1"),
    ("reward", "reward", "default"),
)


def render(states: Json | Sequence[Json]) -> RenderableType:
    """The view of these runs, one row each where the terminal is wide and one block each where it is narrow.

    The two p99 sparklines share one zero-based scale over all runs; a value that was NaN or infinite shows as
    ``×``.
    """
    return _View([states] if isinstance(states, Mapping) else list(states))


def follow(
    load: Callable[[], Sequence[Json]],
    interval_s: float,
    stop: Callable[[], bool],
    console: Console | None = None,
) -> None:
    """Redraw what `load` returns every `interval_s` seconds until `stop()` is true. What `load` raises is
    raised here."""
    with Live(render(load()), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        live.refresh()
        while not stop():
            deadline = time.monotonic() + interval_s
            while (left := deadline - time.monotonic()) > 0 and not stop():
                time.sleep(min(left, 0.2))
            if not stop():
                live.update(render(load()), refresh=True)


class _View:
    def __init__(self, states: Sequence[Json]) -> None:
        self.states = states
        tails = (v for s in states for key in ("post_tool_p99", "text_p99") for v in history_of(s, key))
        self.tail_scale = (0.0, max(filter(math.isfinite, tails), default=0.0))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.states:
            yield Text("No run yet.", "dim")
            return
        wide = options.max_width >= _WIDE
        yield self._wide(options.max_width) if wide else Group(*map(self._narrow, self.states))
        yield from (warning_text(state, text) for state in self.states for text in warnings_of(state))
        yield from alarm_list(self.states)
        for state in self.states:
            for key in ("guard", "machine"):
                if words := escape_controls(str(state.get(key) or "")):
                    yield Text.assemble((f"{name_of(state)}: ", "bold"), words)
            if unseen := [unseen_words(item) for item in state.get("not_observed") or []]:
                head = (f"not observed in {name_of(state)}: ", "bold")
                yield Text.assemble(head, "; ".join(unseen), style="dim")

    def _wide(self, width: int) -> Table:
        room = max(8, (width - 110) // 3)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=False)
        table.add_column("run", max_width=24, overflow="ellipsis", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for name in ("step", "last step"):
            table.add_column(name, justify="right", no_wrap=True)
        for title, _, _ in _LINES:
            table.add_column(title, no_wrap=True)
        for name in ("KL", "entropy"):
            table.add_column(name, justify="right", no_wrap=True)
        for state in self.states:
            lines = [self._line(state, key, style, room) for _, key, style in _LINES]
            rest = [Text(number(state.get(key))) for key in ("kl", "entropy")]
            head = (Text(name_of(state), "bold"), verdict_text(state), step_text(state), age_text(state))
            table.add_row(*head, *lines, *rest)
        return table

    def _narrow(self, state: Json) -> RenderableType:
        head = Table.grid(padding=(0, 2, 0, 0), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        step = Text.assemble("step ", step_text(state), "  ", age_text(state))
        head.add_row(verdict_text(state), Text(name_of(state), "bold"), step)
        body = Table.grid(padding=(0, 2, 0, 0))
        for title, key, style in _LINES:
            body.add_row(Text(title, "dim"), self._line(state, key, style, 40))
        kl, entropy = number(state.get("kl")), number(state.get("entropy"))
        means = Text.assemble(("KL ", "dim"), kl, ("   entropy ", "dim"), entropy)
        return Padding(Group(head, Padding(Group(body, means), (0, 0, 0, 2))), (0, 0, 1, 0))

    def _line(self, state: Json, key: str, style: str, width: int) -> Text:
        line = spark(history_of(state, key), width, self.tail_scale if key.endswith("p99") else None)
        return Text.assemble(f"{number(state.get(key)):>6} ", (line, style))
