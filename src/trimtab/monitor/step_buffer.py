"""What arrived in the open step: batches, their counts, and the numbers that name tools, groups and
trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab.capture import slice_counts, token_batch
from trimtab.capture.clean_values import Door, clean_name
from trimtab.capture.segments import MAX_NAMES
from trimtab.capture.step_costs import StepCosts
from trimtab.errors import BatchError
from trimtab.measure.accumulate import nonfinite_columns
from trimtab.measure.sequences.reward_statistics import GROUPS_A_STEP
from trimtab.measure.sequences.step_aggregates import observed_columns
from trimtab.monitor.seen_episodes import SeenEpisodes
from trimtab.runs.schema import compact
from trimtab.traces.core.tool_call import ToolCall
from trimtab.types import TokenBatch
from trimtab.typing import Bool

MAX_STEPS = 2**22
"""Steps until the numbers of groups come again; batches that are measured together are of few steps."""


@dataclass
class Intake:
    """`add` each batch of a step, read what the step held, `next_step`. B sequences of a batch.

    `groups_span_steps`: a group's number means the same prompt in every step, so it is kept.
    """

    groups_span_steps: bool = False
    counts: list[dict[str, tuple[int, int]]] = field(default_factory=list)
    nonfinite: dict[str, int] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)
    door: Door = field(default_factory=Door)  # what was changed before it was taken in
    costs: StepCosts = field(default_factory=StepCosts)  # phases, memory, seconds of episodes
    explained: set[str] = field(default_factory=set)  # columns whose absence the trainer explained, ever
    _tools: tuple[str, ...] = ()
    _episodes: SeenEpisodes = field(default_factory=SeenEpisodes)
    _num_steps: int = 0  # closed so far

    def add(self, batch: TokenBatch | None, arrays: dict[str, Any]) -> tuple[TokenBatch, Bool]:
        """Take a batch in, or the arguments of `token_batch`. The batch with groups as measures read them,
        and (B,) True for trajectories not counted before, so that a second epoch does not count them twice.
        `episode_s`, (B,) seconds of each episode, is taken out of the arguments. BatchError as
        `token_batch`."""
        seconds = arrays.pop("episode_s", None)
        built = self.batch(arrays) if batch is None else self._tables(batch)
        if seconds is not None and np.size(seconds) != built.num_sequences:
            raise BatchError(f"episode_s has {np.size(seconds)} values for {built.num_sequences} sequences")
        for column, count in nonfinite_columns(built).items():
            self.nonfinite[column] = self.nonfinite.get(column, 0) + count
        self.columns |= observed_columns(built)
        self.explained |= built.absent.keys()
        fresh = self._episodes.add(built.episode_id)
        if seconds is not None:
            self.costs.add_episodes(seconds, arrays, fresh, self.door)
        self.counts.append(slice_counts(built, fresh))
        return self._grouped(built), fresh

    def batch(self, arrays: dict[str, Any]) -> TokenBatch:
        """Build a batch of the arguments of `token_batch` with the run's names, without counting it."""
        return token_batch(**self._with_tools(self._named(arrays)))

    def step_costs(self, calls: Sequence[ToolCall], duration_s: object) -> dict[str, Any]:
        """Return what the step cost as fields of its row, rounded as they are stored; once a step."""
        seconds = [(call.episode_id, call.latency_s + call.queued_s, call.name) for call in calls]
        fields: dict[str, Any] = compact(self.costs.take(seconds) | self.door.step_fields(duration_s))
        return fields

    def next_step(self) -> None:
        """Forget the step's counts; names and trajectories are remembered."""
        self.counts, self.nonfinite, self.columns = [], {}, set()
        self.door = Door()
        self._num_steps += 1

    def row(self) -> dict[str, Any]:
        """Return what the row of the step says of what arrived in it."""
        return {"slices": self.slices(), "columns": sorted(self.columns), "nonfinite": self.nonfinite}

    def slices(self) -> dict[str, dict[str, int]]:
        """Slice -> `n_tokens`, and `n_trajectories` counted for the first time, of the step."""
        counted: dict[str, dict[str, int]] = {}
        for counts in self.counts:
            for name, (tokens, trajectories) in counts.items():
                row = counted.setdefault(name, {"n_tokens": 0, "n_trajectories": 0})
                row["n_tokens"] += tokens
                row["n_trajectories"] += trajectories
        return counted

    def total(self) -> tuple[int, int]:
        """Gradient tokens of the step, and trajectories counted for the first time."""
        pairs = [counts.get("all", (0, 0)) for counts in self.counts]
        return sum(tokens for tokens, _ in pairs), sum(trajectories for _, trajectories in pairs)

    def _named(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """The arguments with names that can be stored; others are counted."""
        changes: dict[str, Any] = {}
        for column, what in (("tool_names", "tool name"), ("source", "source"), ("source_names", "source")):
            if isinstance(arrays.get(column), (list, tuple)):
                changes[column] = [self.door.name(what, name) for name in arrays[column]]
        if isinstance(arrays.get("tools"), (list, tuple)):
            changes["tools"] = [
                [self.door.name("tool name", name) for name in names]
                if isinstance(names, (list, tuple))
                else names
                for names in arrays["tools"]
            ]
        return {**arrays, **changes}

    def _tables(self, batch: TokenBatch) -> TokenBatch:
        """A batch made elsewhere, with names that can be stored."""
        tools = tuple(self.door.name("tool name", name) for name in batch.tool_names)
        sources = tuple(self.door.name("source", name) for name in batch.source_names)
        if (tools, sources) == (batch.tool_names, batch.source_names):
            return batch
        return replace(batch, tool_names=tools, source_names=sources)

    def _with_tools(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Without a declared table the tools with a slice of their own are the first 16 names seen."""
        if arrays.get("tools") is None or arrays.get("tool_names"):
            return arrays
        if len(self._tools) < MAX_NAMES:
            seen = [
                clean_name(name) for names in arrays["tools"] if not isinstance(names, str) for name in names
            ]
            self._tools = tuple(dict.fromkeys([*self._tools, *seen]))[:MAX_NAMES]
        return {**arrays, "tool_names": self._tools}

    def _grouped(self, batch: TokenBatch) -> TokenBatch:
        """Groups as every measure reads them: one number is one prompt, wherever it comes again in the run.

        A trainer's numbers that may start over at each step get the number of the step in front; those that
        span steps are kept. So ranks that number their groups together still agree.
        """
        if batch.group is None or self.groups_span_steps:
            return batch
        number = self._num_steps % MAX_STEPS * GROUPS_A_STEP
        return replace(batch, group=(batch.group & (GROUPS_A_STEP - 1)) + number)
