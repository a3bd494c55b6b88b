"""Episodes to the table of the checks, one at a time: an episode is forgotten once it is counted."""

from __future__ import annotations

import copy
import heapq
import math
import posixpath
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.table.episode_facts import EpisodeFacts, call_text, facts_of
from trimtab.traces.table.interning import Codes
from trimtab.traces.table.language import MARKS
from trimtab.traces.table.latency import time_row
from trimtab.traces.table.prompt_groups import asked, grouped_by_prompt
from trimtab.traces.table.schema_check import schemas_by_name
from trimtab.traces.table.types import (
    COUNTS,
    MAX_EVIDENCE,
    MAX_TOOLS,
    OTHER,
    Evidence,
    ToolRow,
    TraceTable,
    group_of,
)

_MAX_KINDS = 16
_MAX_FIRST = 256
_CODES = (
    "success",
    "truncated",
    "task",
    "group",
    "stop",
    "first_error",
    "wrong",
    "wrong_turn",
    "wrong_step",
    "version",
)


class RequiredFiles:
    """Which files to look for, and the tool -> argument that names one; both are `measure.declared`'s."""

    def __init__(self, names: Iterable[str] = (), arguments: Mapping[str, str] | None = None) -> None:
        self.rows = {posixpath.normpath(name): ToolRow() for name in names}
        self.arguments = dict(arguments or {})
        self.uses: list[frozenset[str]] = []

    def add(self, episode: Episode, number: int) -> None:
        """Count the calls of an episode that name one of the files."""
        here: set[str] = set()
        for call in episode.calls if self.rows else ():
            argument = self.arguments.get(call.name)
            value = call.arguments.get(argument) if argument and isinstance(call.arguments, dict) else None
            name = posixpath.normpath(value) if isinstance(value, str) and value else None
            if name not in self.rows:
                continue
            row = self.rows[name]
            row.first = number if row.first < 0 else row.first
            row.calls, row.last = row.calls + 1, number
            row.failed += bool(call.error)
            row.episodes += name not in here
            here.add(name)
        self.uses.append(frozenset(here))

    def used(self) -> npt.NDArray[np.bool_]:
        """(E, F) did a call of the episode name the file?"""
        return np.array([[name in here for name in self.rows] for here in self.uses], bool).reshape(len(self.uses), len(self.rows))  # fmt: skip


def tabulate(episodes: Iterable[Episode], files: RequiredFiles | None = None) -> TraceTable:
    """The table of all episodes.

    >>> from trimtab.traces.core.episode import Call, Turn
    >>> calls = [Call(name="add", result="4"), Call(name="add", result="Error: no", error="no")]
    >>> table = tabulate([Episode(id="a", turns=[Turn(role="assistant", calls=calls)], reward=1.0)])
    >>> table.tools["add"].calls, table.tools["add"].failed, table.counts["failed"].tolist()
    (2, 1, [1])
    """
    builder = TableBuilder(files)
    for episode in episodes:
        builder.add(episode)
    return builder.table()


class TableBuilder:
    """`add` episodes; `table` may be asked for at any time."""

    def __init__(self, files: RequiredFiles | None = None) -> None:
        self.files = files or RequiredFiles()
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.ints = {name: array("q") for name in (*COUNTS, *MARKS, *_CODES)}
        self.floats = {
            name: array("d") for name in ("reward", "tokens", "duration_s", "cost", "ratio", "time")
        }
        self.codes = {
            "task": Codes(),
            "group": Codes(),
            **{name: Codes(_MAX_FIRST) for name in ("stop", "first_error", "version")},
        }
        self.tools: dict[str, ToolRow] = {}
        self.latency: dict[str, array[float]] = {}
        self.slowest: dict[str, list[tuple[float, int, Evidence]]] = {}
        self.timed = 0
        self.prompts = array("q")
        self.uses: list[tuple[frozenset[int], frozenset[int]]] = []
        self.places = Codes()
        self.declared: set[str] = set()
        self.evidence: dict[str, list[Evidence]] = {}
        self.nan_rewards = self.checked = 0
        self.told_by_log = False

    def add(self, episode: Episode) -> None:
        """Count one episode."""
        facts, number = facts_of(episode), len(self.ids)
        self.ids.append(episode.id)
        self.sources.append(episode.source)
        for name in COUNTS:
            self.ints[name].append(facts.counts[name])
        for name in MARKS:
            self.ints[name].append(facts.marks[name])
        for name, place in zip(("wrong", "wrong_turn", "wrong_step"), facts.wrong, strict=True):
            self.ints[name].append(place)
        self.prompts.append(asked(episode))
        self.files.add(episode, number)
        self.ints["version"].append(self.codes["version"].of(_version(episode)))
        self.ints["success"].append(-1 if episode.success is None else int(episode.success))
        self.ints["truncated"].append(facts.truncated)
        group = group_of(episode.group, episode.task, episode.step)
        self.ints["task"].append(self.codes["task"].of(group if episode.task is None else episode.task))
        self.ints["group"].append(self.codes["group"].of(group))
        self.ints["stop"].append(self.codes["stop"].of(episode.stop_reason))
        self.ints["first_error"].append(self.codes["first_error"].of(facts.first_error or None))
        for name, value in (
            ("reward", episode.reward),
            ("tokens", facts.tokens),
            ("duration_s", episode.duration_s),
            ("cost", episode.cost),
            ("ratio", episode.largest_log_ratio),
            ("time", episode.time),
        ):
            self.floats[name].append(math.nan if value is None else value)
        if episode.reward is not None and not math.isfinite(episode.reward):
            self.nan_rewards += 1
            self._keep("nan_rewards", Evidence(episode.id, -1, f"reward {episode.reward}", episode.source))
        self._tools(facts, number)
        self.told_by_log = self.told_by_log or any(c.error_from == "log" for c in episode.calls)
        if len(self.declared) < 1_000:
            self.declared |= schemas_by_name(episode.tools or []).keys()
        self.checked += facts.checked
        for what, where in facts.found.items():
            self._keep(what, where)

    def _keep(self, what: str, where: Evidence) -> None:
        if what not in self.evidence and len(self.evidence) >= 4 * MAX_TOOLS:
            return
        kept = self.evidence.setdefault(what, [])
        if len(kept) < MAX_EVIDENCE:
            kept.append(where)

    def _tools(self, facts: EpisodeFacts, number: int) -> None:
        used: Counter[str] = Counter()
        erred: Counter[str] = Counter()
        for place, call in enumerate(facts.calls):
            name = call.name
            if name not in self.tools and len(self.tools) >= MAX_TOOLS:
                name = OTHER
            row = self.tools.setdefault(name, ToolRow(first=number))
            row.calls, row.last = row.calls + 1, number
            row.unknown += call.unknown
            if call.error:
                row.failed += 1
                row.faults[call.fault] += 1
                full = call.kind not in row.kinds and len(row.kinds) >= _MAX_KINDS
                row.kinds[OTHER if full else call.kind] += 1
                erred[name] += 1
            if call.latency_s is not None and math.isfinite(call.latency_s):
                self.latency.setdefault(name, array("d")).append(call.latency_s)
                self._slow(name, call.latency_s, facts.episode, facts.episode.calls[place])
            used[name] += 1
        for name, calls_here in used.items():
            row, failed_here = self.tools[name], erred[name]
            row.episodes += 1
            row.sum_ff += failed_here**2
            row.sum_fc += failed_here * calls_here
            row.sum_cc += calls_here**2
        self.uses.append((frozenset(map(self.places.of, used)), frozenset(map(self.places.of, erred))))

    def _slow(self, name: str, seconds: float, episode: Episode, call: Call) -> None:
        """Keep the call if it is among the slowest of its tool; of equal ones the first."""
        kept = self.slowest.setdefault(name, [])
        if len(kept) < MAX_EVIDENCE or seconds > kept[0][0]:
            where = Evidence(episode.id, call.step, f"{seconds:.3g} s: {call_text(call)}", episode.source)
            keep = heapq.heappush if len(kept) < MAX_EVIDENCE else heapq.heapreplace
            self.timed += 1
            keep(kept, (seconds, -self.timed, where))

    def table(self) -> TraceTable:
        """The table of the episodes so far; episodes added later do not change it."""
        for name, seconds in self.latency.items():
            time_row(self.tools[name], np.array(seconds))
            self.tools[name].slowest = [place for _, _, place in sorted(self.slowest[name], reverse=True)]
        shape = (len(self.ids), len(self.places))
        used, erred = np.zeros(shape, bool), np.zeros(shape, bool)
        for i, (some, bad) in enumerate(self.uses):
            used[i, list(some)] = True
            erred[i, list(bad)] = True
        ints: dict[str, Any] = {name: np.array(values, np.int64) for name, values in self.ints.items()}
        floats: dict[str, Any] = {name: np.array(values, np.float64) for name, values in self.floats.items()}
        ints["group"], groups, by_prompt = grouped_by_prompt(
            ints["group"], list(self.codes["group"]), np.array(self.prompts), self.ids
        )
        return TraceTable(
            ids=list(self.ids), counts={name: ints[name] for name in COUNTS}, **floats,
            success=ints["success"].astype(np.int8), truncated=ints["truncated"].astype(np.int8),
            **{name: ints[name] for name in ("task", "group", "stop", "first_error", "wrong", "wrong_turn", "wrong_step", "version")},
            marks={name: ints[name] for name in MARKS}, files=copy.deepcopy(self.files.rows), file_used=self.files.used(), versions=list(self.codes["version"]),
            tasks=list(self.codes["task"]), groups=groups, by_prompt=by_prompt, stops=list(self.codes["stop"]), first_errors=list(self.codes["first_error"]),
            tools=copy.deepcopy(self.tools), tool_names=list(self.places), used=used, erred=erred,
            declared_tools=frozenset(self.declared), nan_rewards=self.nan_rewards, num_checked_schemas=self.checked,
            sources=list(self.sources), evidence={what: list(kept) for what, kept in self.evidence.items()}, told_by_log=self.told_by_log, engine="records",
        )  # fmt: skip


def _version(episode: Episode) -> str | None:
    """The policy that wrote the episode; of several, the first; where none is named, that of its training step."""
    versions = [episode.policy_version, *(turn.policy_version for turn in episode.turns)]
    named = next((str(version) for version in versions if version is not None), None)
    return named if named is not None or episode.step is None else f"step {episode.step}"
