"""Episodes to the table of the checks, one at a time: an episode is forgotten once it is counted."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from trimtab.traces.core.episode import Call, Episode
from trimtab.traces.table.compact import Codes, Names, narrow
from trimtab.traces.table.episode_facts import EpisodeFacts, call_text, facts_of
from trimtab.traces.table.language import MARKS
from trimtab.traces.table.partials import CODED, FLOATS, MAX_DECLARED, PLAIN, Partial, combine
from trimtab.traces.table.prompt_groups import prompt_key
from trimtab.traces.table.required_files import RequiredFiles
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

    def __init__(self, files: RequiredFiles | None = None, tools: frozenset[str] | None = None) -> None:
        """`tools`: the only ones with a row of their own; None: the first that come."""
        self.files, self.only = files or RequiredFiles(), tools
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.ints = {name: array("q") for name in (*COUNTS, *MARKS, *PLAIN, *CODED)}
        self.floats = {name: array("d") for name in FLOATS}
        self.codes = {name: Codes(limit) for name, limit in CODED.items()}
        self.tools: dict[str, ToolRow] = {}
        self.latency: dict[str, array[float]] = {}
        self.slowest: dict[str, list[tuple[float, int, Evidence]]] = {}
        self.timed = 0
        self.prompts = array("q")
        self.uses = (array("q"), array("q"), array("b"))  # episode, tool, did a call of it fail
        self.tool_codes = Codes()
        self.declared: dict[str, None] = {}
        self.evidence: dict[str, list[Evidence]] = {}
        self.nan_rewards = self.checked = 0
        self.error_flags_in_log = False

    def add(self, episode: Episode) -> None:
        """Count one episode."""
        facts, number = facts_of(episode, self._wants), len(self.ids)
        self.ids.append(episode.id)
        self.sources.append(episode.source)
        for name in COUNTS:
            self.ints[name].append(facts.counts[name])
        for name in MARKS:
            self.ints[name].append(facts.marks[name])
        for name, value in zip(("symptom", "symptom_turn", "symptom_step"), facts.symptom, strict=True):
            self.ints[name].append(value)
        self.prompts.append(prompt_key(episode))
        self.files.add(episode, number)
        self.ints["version"].append(self.codes["version"].of(_version(episode)))
        self.ints["policy"].append(self.codes["policy"].of(_policy(episode)))
        self.ints["success"].append(-1 if episode.success is None else int(episode.success))
        self.ints["truncated"].append(facts.truncated)
        group = group_of(episode.group, episode.task, episode.step)
        self.ints["task"].append(self.codes["task"].of(group if episode.task is None else episode.task))
        self.ints["group"].append(self.codes["group"].of(group))
        self.ints["stop"].append(self.codes["stop"].of(episode.stop_reason))
        self.ints["first_error"].append(self.codes["first_error"].of(facts.first_error or None))
        for name, number_or_none in (
            ("reward", episode.reward),
            ("tokens", facts.tokens),
            ("duration_s", episode.duration_s),
            ("cost", episode.cost),
            ("ratio", episode.largest_log_ratio),
            ("time", episode.time),
        ):
            self.floats[name].append(math.nan if number_or_none is None else number_or_none)
        if episode.reward is not None and not math.isfinite(episode.reward):
            self.nan_rewards += 1
            self._keep("nan_rewards", Evidence(episode.id, -1, f"reward {episode.reward}", episode.source))
        self._tools(facts, number)
        if not self.error_flags_in_log:
            self.error_flags_in_log = any(c.error_from == "log" for c in episode.calls)
        if episode.tools and len(self.declared) < MAX_DECLARED:
            self.declared |= dict.fromkeys(schemas_by_name(episode.tools))
        self.checked += facts.checked
        for what, where in facts.evidence.items():
            self._keep(what, where)

    def _wants(self, what: str) -> bool:
        return len(self.evidence.get(what, ())) < MAX_EVIDENCE

    def _keep(self, what: str, where: Evidence) -> None:
        if what not in self.evidence and len(self.evidence) >= 4 * MAX_TOOLS:
            return
        examples = self.evidence.setdefault(what, [])
        if len(examples) < MAX_EVIDENCE:
            examples.append(where)

    def _tools(self, facts: EpisodeFacts, number: int) -> None:
        used: dict[str, int] = {}
        erred: Counter[str] = Counter()
        for source, call in zip(facts.episode.calls, facts.calls, strict=True):
            name = call.name
            full = len(self.tools) >= MAX_TOOLS if self.only is None else name not in self.only
            if full and name not in self.tools:
                name = OTHER
            row = self.tools.get(name)
            if row is None:
                row = self.tools[name] = ToolRow(first=number)
            row.calls, row.last = row.calls + 1, number
            row.unknown += call.unknown
            if call.error:
                row.failed += 1
                row.faults[call.fault] += 1
                row.kinds.add(call.kind)
                erred[name] += 1
            if call.latency_s is not None and math.isfinite(call.latency_s):
                if name not in self.latency:
                    self.latency[name] = array("d")
                self.latency[name].append(call.latency_s)
                self._slow(name, call.latency_s, facts.episode, source)
            used[name] = used.get(name, 0) + 1
        for name, calls_here in used.items():
            row, failed_here = self.tools[name], erred[name]
            row.episodes += 1
            row.sum_ff += failed_here**2
            row.sum_fc += failed_here * calls_here
            row.sum_cc += calls_here**2
            use = (number, self.tool_codes.of(name), failed_here > 0)
            for column, value in zip(self.uses, use, strict=True):
                column.append(value)

    def _slow(self, name: str, seconds: float, episode: Episode, call: Call) -> None:
        """Keep the call if it is among the slowest of its tool; of equal ones the first."""
        slowest = self.slowest.setdefault(name, [])
        if len(slowest) < MAX_EVIDENCE or seconds > slowest[0][0]:
            where = Evidence(episode.id, call.step, f"{seconds:.3g} s: {call_text(call)}", episode.source)
            put = heapq.heappush if len(slowest) < MAX_EVIDENCE else heapq.heapreplace
            self.timed += 1
            put(slowest, (seconds, -self.timed, where))

    def table(self) -> TraceTable:
        """Return the table of the episodes so far; episodes added later do not change it."""
        return combine([self.partial()])

    def partial(self) -> Partial:
        """Return what is known of the episodes so far in few bytes: what a worker sends."""
        ints = {name: narrow(np.array(values, np.int64)) for name, values in self.ints.items()}
        episode, tool, erred = (np.array(column, np.int64) for column in self.uses)
        return Partial(
            ids=Names.packed(self.ids), sources=Names.packed(self.sources), ints=ints,
            floats={name: np.array(values, np.float64) for name, values in self.floats.items()},
            codes={name: list(codes) for name, codes in self.codes.items()},
            prompts=np.array(self.prompts, np.int64),
            tools={name: replace(row, faults=Counter(row.faults), kinds=row.kinds.copy()) for name,
            row in self.tools.items()},
            tool_names=list(self.tool_codes), uses=(episode.astype(np.int32), tool.astype(np.int16),
            erred.astype(bool)),
            latency={name: np.array(seconds) for name, seconds in self.latency.items()},
            slowest={name: [(s, -order, where) for s, order, where in rows] for name,
            rows in self.slowest.items()},
            files=self.files.partial(), declared=list(self.declared),
            evidence={what: list(some) for what, some in self.evidence.items()},
            nan_rewards=self.nan_rewards, checked=self.checked, error_flags_in_log=self.error_flags_in_log,
        )  # fmt: skip


def _version(episode: Episode) -> str | None:
    """The policy that wrote the episode; of several, the first; where none is named, that of its training
    step."""
    named = _named_version(episode)
    return named if named is not None or episode.step is None else f"step {episode.step}"


def _named_version(episode: Episode) -> str | None:
    versions = [episode.policy_version, *[turn.policy_version for turn in episode.turns]]
    return next((str(version) for version in versions if version is not None), None)


def _policy(episode: Episode) -> str | None:
    """Model and version, as far as the log names them."""
    named = [one for one in (episode.model, _named_version(episode)) if one is not None]
    return " ".join(named) or None
