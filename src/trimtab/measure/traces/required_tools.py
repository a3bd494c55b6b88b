"""Which required tools and files are never used, rarely, or no longer?

No longer: episodes use it less often in the later part of the log than before, by much more than chance, and
hardly at all. Later is by time where every episode has one, else by the log's order, and by policy version
where the log names them. The chance is that of `trace_permutations`: whether an attempt at a task uses the
tool does not depend on when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from trimtab.catalog import bound
from trimtab.measure.state.requirements import Requirements
from trimtab.measure.traces.builder import Maker, Measured
from trimtab.measure.traces.episode_times import in_order, version_ranks
from trimtab.measure.traces.permutation_test import permutation_p
from trimtab.traces.table.types import Evidence, ToolRow, TraceTable
from trimtab.typing import Array

_Cut = tuple[str, npt.NDArray[np.bool_]]  # since when, in words, and (E,) is the episode later?

_PARTS = (2, 3, 4)
_MAX_VERSIONS = 16
_MAX_EPISODES = 20_000  # the last ones
_MIN_USED = 5


def neglected(maker: Maker, declared: Requirements) -> Iterator[Measured]:
    """How many of the required tools and files are neglected, and why each is."""
    table, n = maker.table, maker.table.num_episodes
    num_required = len(declared.required_tools) + len(table.files)
    problems: dict[str, str] = {}
    for name in declared.required_tools:
        row = table.tools.get(name)
        if row is None:
            problems[name] = "never called"
        elif why := _abandoned(maker, row, table.used[:, table.tool_names.index(name)], num_required):
            problems[name] = f"abandoned: called in {why}"
        elif row.episodes < bound("tool_rare_frac") * n:  # of calls, one to end each episode is few
            problems[name] = f"called rarely: in {row.episodes:,} of {n:,} episodes"
    for index, (name, row) in enumerate(table.files.items()):
        if row.last < 0:
            problems[name] = "never named in a call"
        elif why := _abandoned(maker, row, table.file_used[:, index], num_required):
            problems[name] = f"abandoned: named in {why}"
    examples = [Evidence("", -1, f"{name}: {why}") for name, why in problems.items()]
    yield maker.value(
        "traces/neglected", float(len(problems)) if num_required else math.nan, n, evidence=examples,
        reason="no tool or file was required (--require)",
        text="; ".join(f"{name} {why}" for name, why in problems.items()),
    )  # fmt: skip


def _abandoned(maker: Maker, row: ToolRow, used: Array, num_required: int) -> str:
    """Before and since when, in words; empty when it is not. The worst of the cuts is held against the worst
    of every permutation."""
    order = in_order(maker.table)[0][-_MAX_EPISODES:]
    cuts = [(since, late[order]) for since, late in _cuts(maker.table)]
    cuts = [(since, late) for since, late in cuts if _enough(late)]
    if row.episodes < _MIN_USED or not cuts:
        return ""
    here, groups = used[order].astype(np.float64), maker.table.group[order].astype(np.int64)
    weights = np.array([np.where(late, -1 / late.sum(), 1 / (~late).sum()) for _, late in cuts])
    weights /= np.sqrt((weights**2).sum(axis=1, keepdims=True))
    falls = [here[late].mean() < bound("trace_abandoned_frac") * here[~late].mean() for _, late in cuts]
    if not any(falls):
        return ""
    p = permutation_p(
        here, maker.clusters[order], lambda x: float((weights @ x).max()), np.random.default_rng(0), groups
    )
    if p > bound("trace_level") / num_required:
        return ""
    worst = int(np.where(falls, weights @ here, -np.inf).argmax())
    since, late = cuts[worst]
    return f"{_of(here[~late])} before, {_of(here[late])} since {since} (p {p:.2g})"


def _enough(late: npt.NDArray[np.bool_]) -> bool:
    return bool(bound("trace_episodes") <= late.sum() <= late.size - bound("trace_episodes"))


def _cuts(table: TraceTable) -> Iterator[_Cut]:
    """Each policy version and those after it, where every episode has one; the last half, third and fourth of
    the episodes."""
    if len(table.versions) > 1 and (table.version >= 0).all():
        ranks = version_ranks(table)
        rank = ranks[table.version]
        firsts = np.unique(rank)[1:]
        some = np.unique(np.linspace(0, firsts.size - 1, min(firsts.size, _MAX_VERSIONS)).astype(int))
        for first in firsts[some]:
            version = table.versions[int(np.flatnonzero(ranks == first)[0])]
            yield f"policy version {version[:40]}", rank >= first
    order, _ = in_order(table)
    for part in _PARTS:
        start = table.num_episodes - table.num_episodes // part
        late = np.zeros(table.num_episodes, bool)
        late[order[start:]] = True
        yield f"episode {table.ids[order[start]]}", late


def _of(here: Array) -> str:
    return f"{here.sum():,.0f} of {here.size:,} episodes"
