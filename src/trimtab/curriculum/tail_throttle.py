"""How much less often tasks and tools with heavy tails are drawn. M tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import bound

Floats = NDArray[np.float64]


class TailThrottle:
    """Means of the tail of each task and each tool, and the factor in (0, 1] on the weight of a task.

    A tail is any number of at least 0 that is larger where the policy's tokens stray further, such as the
    fraction of tokens with |log pi/mu| above 1. The factor is min(1, limit / tail), with the limit at a
    multiple of the median over tasks, and likewise of the task's tool over tools; the smaller one counts.
    """

    def __init__(self, num_tasks: int) -> None:
        self.tails = np.full(num_tasks, math.nan)
        self.tools: list[str] = []
        self.tool_tails: list[float] = []
        self.tool_of = np.full(num_tasks, -1, np.int64)

    def add(self, task: int, tail: float, tool: str) -> None:
        """Count one group's mean tail; nan is unknown. `tool` is the tool it used, "" for none."""
        keep = bound("curriculum_tail_memory")
        if tool:
            if tool not in self.tools:
                self.tools.append(tool)
                self.tool_tails.append(math.nan)
            self.tool_of[task] = self.tools.index(tool)
        if math.isnan(tail):
            return
        self.tails[task] = _mixed(self.tails[task], tail, keep)
        if tool:
            index = self.tools.index(tool)
            self.tool_tails[index] = _mixed(self.tool_tails[index], tail, keep)

    def factors(self) -> Floats:
        """Return the factor on every task's weight, (M,); 1 where no tail is known."""
        factors = _factors(self.tails)
        if self.tools:
            by_tool = np.append(_factors(np.array(self.tool_tails)), 1.0)  # the last one for no tool
            factors = np.minimum(factors, by_tool[self.tool_of])
        return factors

    def state(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the tails of some tasks, and the tools, as plain lists; None is unknown."""
        return {
            "tails": _plain(self.tails[rows].tolist()),
            "tool_of": self.tool_of[rows].tolist(),
            "tools": list(self.tools),
            "tool_tails": _plain(self.tool_tails),
        }

    def restore(self, rows: NDArray[np.int64], state: dict[str, Any]) -> None:
        """Take over what `state` returned for the same rows; other tasks have no tail."""
        self.tails[:], self.tool_of[:] = math.nan, -1
        self.tails[rows] = [math.nan if tail is None else tail for tail in state["tails"]]
        self.tool_of[rows] = state["tool_of"]
        self.tools = list(state["tools"])
        self.tool_tails = [math.nan if tail is None else tail for tail in state["tool_tails"]]


def _mixed(old: float, new: float, keep: float) -> float:
    return new if math.isnan(old) else keep * old + (1.0 - keep) * new


def _factors(tails: Floats) -> Floats:
    """Return min(1, limit / tail); 1 for what is unknown, and for all while the median is 0."""
    known = tails[~np.isnan(tails)]
    limit = bound("curriculum_tail_ratio") * float(np.median(known)) if known.size else 0.0
    if limit <= 0.0:
        return np.ones(tails.size)
    return limit / np.fmax(tails, limit)  # fmax: nan counts as the limit


def _plain(tails: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(tail) else float(tail) for tail in tails]
