"""What one tool, or one value of a tool's argument, was used for: counts of the run and of the open
window."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trimtab.stats import FrequentItems, LogSketch
from trimtab.traces.core.tool_call import ToolCall

OTHER = "other"
MAX_KINDS = 16  # that have readings, the most frequent
_COUNTED = 256  # kinds that are counted apart; above, counts have an error (`FrequentItems`)
_FEW = 1_024  # calls kept before they go into the histograms
_WORD = re.compile(r"[A-Za-z_][\w.]*")


@dataclass
class UseCount:
    """Calls in the open window and in the run, and the last step with one (-1: never)."""

    calls: int = 0
    total: int = 0
    last_step: int = -1

    def add(self, step: int) -> None:
        """One call at `step`."""
        self.calls += 1
        self.total += 1
        self.last_step = max(step, self.last_step)


def _seconds() -> LogSketch:
    return LogSketch(highest_exponent=24)


@dataclass
class ToolUse(UseCount):
    """A tool's open window: failures by kind, latency in seconds, size of results in characters."""

    failures: FrequentItems = field(default_factory=lambda: FrequentItems(_COUNTED))
    latency: LogSketch = field(default_factory=_seconds)
    size: LogSketch = field(default_factory=_seconds)
    fresh: list[tuple[float, float]] = field(default_factory=list)

    def take(self, call: ToolCall, step: int) -> None:
        """One call at `step`."""
        self.add(step)
        self.fresh.append((call.latency_s, call.result_size))
        if len(self.fresh) >= _FEW:
            self.settle()
        if call.error:
            self.failures.add(call.kind or error_kind(call.error))

    def settle(self) -> None:
        """Move what is kept of calls into the histograms, in one update."""
        if self.fresh:
            values = np.array(self.fresh, np.float32)
            self.latency.update(np.ascontiguousarray(values[:, 0]))
            self.size.update(np.ascontiguousarray(values[:, 1]))
            self.fresh = []

    def values(self, total: int, episodes: int) -> Iterator[tuple[str, float, int]]:
        """Key, value and what it rests on, of the open window; `total` calls of all tools in `episodes`."""
        self.settle()
        failed = self.failures.total
        timed = self.latency.count
        yield "tools/calls", float(self.calls), self.calls
        yield "tools/share", self.calls / total if total else math.nan, total
        yield "tools/calls_per_episode", self.calls / episodes if episodes else math.nan, episodes
        yield "tools/failure_frac", failed / self.calls if self.calls else math.nan, self.calls
        for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            yield f"tools/latency_{label}_s", self.latency.quantile(q) if timed else math.nan, timed
        yield "tools/result_size_p50", self.size.quantile(0.5) if self.calls else math.nan, self.calls

    def renew(self) -> ToolUse:
        """The next window of the same tool."""
        return ToolUse(total=self.total, last_step=self.last_step)


def error_kind(error: str) -> str:
    """The class or first word of an error's text; `error` when it has none.

    >>> error_kind("TimeoutError: no answer in 5 s"), error_kind("unknown tool"), error_kind("404")
    ('TimeoutError', 'unknown', 'error')
    """
    word = _WORD.search(error)
    return word.group(0)[:64] if word else "error"


def named(name: str, table: dict[str, UseCount] | dict[str, ToolUse], limit: int) -> str:
    """`name`, or `other` when the table is full of other names."""
    return name if name in table or len(table) < limit else OTHER
