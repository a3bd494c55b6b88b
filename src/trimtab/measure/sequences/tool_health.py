"""Which tools are called, which fail or are slow, and which that should be used are not?

From `ToolCall` records. A window is `STEP_WINDOW` steps, whatever the number of calls: a reading's n says how
many it rests on, and a tool nobody calls has readings too. Names come from a model, so every table is
bounded, with `other`.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.catalog import bound
from trimtab.measure.sequences.step_aggregates import STEP_WINDOW
from trimtab.measure.sequences.tool_use import MAX_KINDS, OTHER, ToolUse, UseCount, named
from trimtab.measure.state.requirements import Requirements
from trimtab.traces.core.tool_call import ToolCall, call_from_row
from trimtab.types import Reading, Status, Window

MAX_TOOLS = 32
MAX_VALUES = 256
"""Values of a key argument that are counted apart."""

MAX_SHOWN = 32
"""Values of a key argument with readings of their own, those with the latest calls; all values stay
counted."""


@dataclass
class ToolHealth:
    """`add` each call, `close` each step; a window's readings come with its last step."""

    requirements: Requirements = field(default_factory=Requirements)
    tools: dict[str, ToolUse] = field(default_factory=dict)
    values: dict[tuple[str, str], dict[str, UseCount]] = field(default_factory=dict)
    files: dict[str, UseCount] = field(default_factory=dict)
    first_step: int = -1  # of the run
    window_first: int = -1
    steps: int = 0  # in the open window
    episodes: int = 0

    def __post_init__(self) -> None:
        self.tools |= {name: ToolUse() for name in self.requirements.required_tools}
        self.files |= {posixpath.normpath(name): UseCount() for name in self.requirements.required_files}

    def close(self, step: int, calls: Iterable[ToolCall], episodes: int) -> list[Reading]:
        """Take a step's calls and its number of new trajectories; the readings of the window that ends with
        it, if one does."""
        self.first_step = step if self.first_step < 0 else self.first_step
        self.window_first = step if self.window_first < 0 else self.window_first
        for call in calls:
            self._add(call, step)
        self.steps, self.episodes = self.steps + 1, self.episodes + episodes
        if self.steps < STEP_WINDOW:
            return []
        readings = list(self._readings(step)) if self.tools or self.files else []
        self._renew()
        return readings

    def neglected(self, step: int) -> dict[str, str]:
        """Required tool or file -> never called, called rarely in the open window, or abandoned. None before
        a window's steps."""
        if step - self.first_step + 1 < STEP_WINDOW:
            return {}
        total = sum(use.calls for use in self.tools.values())
        unused: dict[str, str] = {}
        uses: dict[str, UseCount] = {name: self.tools[name] for name in self.requirements.required_tools}
        for name, use in {**uses, **self.files}.items():
            if use.last_step < 0:
                unused[name] = "never called"
            elif step - use.last_step >= bound("tool_abandoned_steps"):
                unused[name] = f"abandoned since step {use.last_step}"
            elif name in uses and use.calls < bound("tool_rare_frac") * total:
                unused[name] = f"{use.calls} of {total} calls"
        return unused

    def _add(self, call: ToolCall, step: int) -> None:
        name = named(call.name or "(no name)", self.tools, MAX_TOOLS)
        if name not in self.tools:
            self.tools[name] = ToolUse()
        self.tools[name].take(call, step)
        argument = self.requirements.key_arguments.get(call.name)
        if argument is None or argument not in call.arguments:
            return
        value = str(call.arguments[argument])[:256]
        table = self.values.setdefault((call.name, argument), {})
        table.setdefault(named(value, table, MAX_VALUES), UseCount()).add(step)
        wanted = self.files.get(posixpath.normpath(value)) if value else None
        if wanted is not None:
            wanted.add(step)

    def _readings(self, step: int) -> Iterator[Reading]:
        window, total = Window(self.window_first, step), sum(use.calls for use in self.tools.values())

        def reading(key: str, where: str, value: float, n: int, reason: str = "") -> Reading:
            blocked = "" if math.isfinite(value) else reason or "no call in the window to judge it by"
            status: Status = "ok" if math.isfinite(value) else "not observed"
            return Reading(
                key, step, window, where, value, n, self.episodes, status=status, reason=blocked or reason
            )

        for name, use in self.tools.items():
            for key, value, n in use.values(total, self.episodes):
                yield reading(key, f"tool/{name}", value, n)
            if name in self.requirements.required_tools or use.total >= bound("tool_known_calls"):
                yield reading("tools/steps_since_call", f"tool/{name}", self._since(use, step), use.calls)
            for kind, count in use.failures.shown(MAX_KINDS, OTHER).items():
                yield reading("tools/failures", f"tool/{name}/error={kind}", count, use.calls)
        for where, seen in self._shown():
            yield reading("tools/calls", where, float(seen.calls), seen.calls)
            yield reading("tools/steps_since_call", where, self._since(seen, step), seen.calls)
        if self.requirements.required_tools or self.files:
            unused = self.neglected(step)
            text = "; ".join(f"{name}: {why}" for name, why in unused.items())
            yield reading("tools/neglected", "all", len(unused), total, text)
        if total:
            yield from (reading(key, "all", value, n) for key, value, n in self._averages(total))

    def _shown(self) -> Iterator[tuple[str, UseCount]]:
        for (tool, argument), table in self.values.items():
            latest = sorted(table, key=lambda value: (-table[value].last_step, -table[value].calls, value))
            for value in latest[:MAX_SHOWN]:
                yield f"tool/{tool}/{argument}={value}", table[value]
        for name, count in self.files.items():
            yield f"file/{name}", count

    def _averages(self, total: int) -> Iterator[tuple[str, float, int]]:
        uses = self.tools.values()
        failed = sum(use.failures.total for use in uses)
        timed = [use.latency for use in uses if use.latency.count]
        n = sum(sketch.count for sketch in timed)
        per_episode = total / self.episodes if self.episodes else math.nan
        yield "aggregate/tool_calls", per_episode, self.episodes
        yield "aggregate/tool_failure_frac", failed / total, total
        seconds = math.fsum(sketch.mean() * sketch.count for sketch in timed) / n if n else math.nan
        yield "aggregate/tool_latency_s", seconds, n

    def _since(self, use: UseCount, step: int) -> float:
        return float(step - use.last_step if use.last_step >= 0 else step - self.first_step + 1)

    def _renew(self) -> None:
        self.tools = {name: use.renew() for name, use in self.tools.items()}
        for count in (*self.files.values(), *(c for table in self.values.values() for c in table.values())):
            count.calls = 0
        self.window_first, self.steps, self.episodes = -1, 0, 0


def replay_tools(
    health: ToolHealth, steps: Iterable[Mapping[str, Any]], calls: Iterable[Mapping[str, Any]]
) -> list[Reading]:
    """Feed the rows of a run store, in the order of steps, and return the readings of the windows they
    close."""
    by_step: dict[int, list[ToolCall]] = {}
    for row in calls:
        by_step.setdefault(int(row["step"]), []).append(call_from_row(row))
    readings: list[Reading] = []
    for row in steps:
        episodes = row["slices"].get("all", {}).get("n_trajectories", 0)
        readings += health.close(int(row["step"]), by_step.get(int(row["step"]), ()), int(episodes))
    return readings
