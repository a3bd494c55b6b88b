"""The episodes that call one tool, in order of time, each to be compared with others of its model and policy
version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np

from trimtab.catalog import bound
from trimtab.measure.traces.builder import Maker
from trimtab.measure.traces.episode_times import in_order, running_at_once
from trimtab.measure.traces.permutation_test import (
    NARROWEST,
    Statistic,
    apart,
    permutation_p,
    strata_of,
    without_tasks,
)
from trimtab.typing import Float64, Int64

_MAX_EPISODES = 20_000  # the last ones that call the tool


@dataclass(frozen=True, eq=False)
class ToolEpisodes:
    """One tool's episodes in order of time: indices in the table, (n,) failed, tasks, groups (-1: none),
    model and version (-1: none named), episodes at once (None: unknown)."""

    tool: str
    indices: Int64
    failed: Float64
    tasks: Int64
    groups: Int64
    policies: Int64
    at_once: Float64 | None
    timed: bool = True
    few: int = 0  # episodes left out, whose model and version has too few to be compared with itself

    @cached_property
    def strata(self) -> list[Int64]:
        """Indices of the episodes of each model and version."""
        return strata_of(self.policies)

    @cached_property
    def values(self) -> Float64:
        """(n,) failures beyond what the task fails in by this model and version."""
        return self.by_stratum(lambda part: without_tasks(self.failed[part], self.tasks[part]))

    def by_stratum(self, function: Callable[[Int64], Float64]) -> Float64:
        """(n,) what the function says of the episodes of each stratum."""
        result = np.empty(self.indices.size)
        for part in self.strata:
            result[part] = function(part)
        return result

    @property
    def repeated(self) -> bool:
        """Is a task tried at several times by one model and version?"""
        return any(apart(self.tasks[part]).any() for part in self.strata)

    @property
    def narrowest(self) -> int:
        """Of windows. A log without times is often in the order in which episodes ended, where those that
        hang stand together at the end of their batch: there no window under an eighth of the episodes is
        looked at."""
        return (
            NARROWEST if self.timed else max(NARROWEST, int(self.indices.size * bound("trace_burst_untimed")))
        )

    def taken(self, where: Int64, few: int = 0) -> ToolEpisodes:
        """Those at some indices."""
        load = None if self.at_once is None else self.at_once[where]
        return replace(
            self, indices=self.indices[where], failed=self.failed[where], tasks=self.tasks[where],
            groups=self.groups[where], policies=self.policies[where], at_once=load, few=few or self.few,
        )  # fmt: skip

    def without(self, first: int, end: int) -> ToolEpisodes:
        """All but those from the first to before the end."""
        return self.taken(np.r_[0:first, end : self.indices.size])

    def comparable(self) -> ToolEpisodes:
        """Those whose model and version has enough episodes to be compared with itself."""
        parts = [part for part in self.strata if part.size >= 2 * NARROWEST]
        where = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        return self.taken(where, self.indices.size - where.size)

    def permutation_p(self, question: str, statistic: Statistic) -> float:
        """How often the statistic of `values` is as large by chance. Random numbers are of their own for each
        tool and question, so that neither their order nor the other tools change a p."""
        seed = blake2b(f"{question}/{self.tool}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(seed, "big"))
        return permutation_p(self.values, self.tasks, statistic, rng, self.groups, self.policies)


def tool_episodes(maker: Maker) -> Iterator[ToolEpisodes]:
    """Each tool's episodes, of tools that are called in enough of them to be judged."""
    table = maker.table
    order, by = in_order(table)
    at_once = running_at_once(table)
    for tool_index, tool in enumerate(table.tool_names):
        mine = order[table.used[order, tool_index]][-_MAX_EPISODES:]
        if mine.size >= bound("trace_episodes"):
            load = None if at_once is None else at_once[mine]
            failed = table.erred[mine, tool_index] * 1.0
            yield ToolEpisodes(
                tool,
                mine,
                failed,
                maker.clusters[mine],
                table.group[mine].astype(np.int64),
                table.policy[mine].astype(np.int64),
                load,
                by == "time",
            )
