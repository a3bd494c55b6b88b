"""Do a tool's failures come in bursts, and do they come when many episodes run at once?

Both are asked of episodes that call the tool: did a call of it fail? What a burst is compared with, and why
that is fair to tasks of different difficulty, says `trace_permutations`. Load is judged outside the worst
burst: calls that hang in an outage pile up, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import blake2b

import numpy as np

from trimtab.catalog import bound
from trimtab.measure.traces.builder import Maker, Measured
from trimtab.measure.traces.concurrency import high_load, looked_at_s, running_at_once
from trimtab.measure.traces.ordering import in_order
from trimtab.measure.traces.permutation_test import (
    NARROWEST,
    apart,
    permutation_p,
    without_tasks,
    worst_window,
)
from trimtab.measure.traces.trend import is_trend
from trimtab.stats.array_kernels import dot
from trimtab.traces.core.plural import counted
from trimtab.traces.table.types import Evidence, TraceTable
from trimtab.typing import Float64, Int64

_MAX_TOOLS = 8  # of those that fail in most episodes; what is looked at is corrected for
_MAX_EPISODES = 20_000  # the last ones that call the tool
_MIN_FAILED = 5
_ZONE = " UTC"


@dataclass(frozen=True)
class _Case:
    """One tool's episodes in order of time: indices in the table, (n,) failed, tasks, groups (-1: none),
    episodes at once (None: unknown)."""

    tool: str
    indices: Int64
    failed: Float64
    tasks: Int64
    groups: Int64
    at_once: Float64 | None
    timed: bool = True

    @property
    def narrowest(self) -> int:
        """Of windows. A log without times is often in the order in which episodes ended, where those that
        hang stand together at the end of their batch: there no window under an eighth of the episodes is
        looked at."""
        return (
            NARROWEST if self.timed else max(NARROWEST, int(self.indices.size * bound("trace_burst_untimed")))
        )

    def without(self, first: int, end: int) -> _Case:
        """All but those from the first to before the end."""
        outside = np.r_[0:first, end : self.indices.size]
        load = None if self.at_once is None else self.at_once[outside]
        return _Case(
            self.tool,
            self.indices[outside],
            self.failed[outside],
            self.tasks[outside],
            self.groups[outside],
            load,
            self.timed,
        )


@dataclass(frozen=True)
class _Burst:
    """The worst window, and whether it is more than chance; `trend`: whether a steady trend explains it as
    well.

    The window is empty (`first == end`) where the tasks alone decide what fails.
    """

    p: float
    real: bool
    first: int
    end: int
    trend: bool = False


def bursts(maker: Maker) -> Iterator[Measured]:
    """Per tool, how much more of its episodes fail inside the worst window, and among those begun while more
    ran than usual; 0 where that is no more than chance at the family's level."""
    table = maker.table
    cases = list(_cases(maker))
    judged = [case for case in cases if _MIN_FAILED <= case.failed.sum() < case.failed.size]
    judged = sorted(judged, key=lambda case: (-case.failed.sum(), case.tool))[:_MAX_TOOLS]
    family = sum(1 + _varies(case.at_once) for case in judged)
    level = bound("trace_level") / max(family, 1)
    if not cases:
        yield maker.value("traces/burst_excess", math.nan, 0, reason="no tool is called in enough episodes")
        yield maker.value("traces/load_excess", math.nan, 0, reason="no tool is called in enough episodes")
    for case in cases:
        if not any(case is one for one in judged):
            few = f"{case.failed.sum():.0f} of {case.failed.size:,} episodes fail: too few, or too many, to come in bursts"  # noqa: E501
            yield maker.value("traces/burst_excess", 0.0, case.failed.size, f"tool/{case.tool}", text=few)
            yield _no_load(maker, case) or maker.value(
                "traces/load_excess", 0.0, case.failed.size, f"tool/{case.tool}", text=few
            )
            continue
        burst = _worst(case, level)
        if burst.end > burst.first:
            yield _burst(maker, table, case, burst)
        else:
            fixed = (
                "each task always fails or never does, whenever it is tried: no time is worse than another"
            )
            yield maker.value("traces/burst_excess", 0.0, case.failed.size, f"tool/{case.tool}", text=fixed)
        yield _no_load(maker, case) or _load(maker, table, case, burst, level)


def _cases(maker: Maker) -> Iterator[_Case]:
    table = maker.table
    order, by = in_order(table)
    at_once = running_at_once(table)
    for tool_index, tool in enumerate(table.tool_names):
        mine = order[table.used[order, tool_index]][-_MAX_EPISODES:]
        if mine.size >= bound("trace_episodes"):
            load = None if at_once is None else at_once[mine]
            failed = table.erred[mine, tool_index] * 1.0
            yield _Case(
                tool,
                mine,
                failed,
                maker.clusters[mine],
                table.group[mine].astype(np.int64),
                load,
                by == "time",
            )


def _rng(question: str, case: _Case) -> np.random.Generator:
    """Of its own for each tool and question, so that neither their order nor the other tools change a p."""
    seed = blake2b(f"{question}/{case.tool}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "big"))


def _worst(case: _Case, level: float) -> _Burst:
    values = without_tasks(case.failed, case.tasks)
    min_window = case.narrowest
    p = permutation_p(
        values, case.tasks, lambda x: worst_window(x, min_window)[0], _rng("burst", case), case.groups
    )
    _, first, end = worst_window(values, min_window)
    burst = _Burst(p, p <= level, first, end)
    return replace(burst, trend=burst.real and is_trend(case.failed, *_around(case.failed, burst)))


def _expected(case: _Case, first: int, end: int) -> float:
    """How many of the window's episodes would fail by what happens outside: at the same task, where it is
    attempted at several times."""
    outside = np.ones(case.failed.size, bool)
    outside[first:end] = False
    _, task = np.unique(case.tasks, return_inverse=True)
    tried, failed = np.bincount(task, outside), np.bincount(task, case.failed * outside)
    own = np.divide(failed, tried, out=np.zeros(tried.size), where=tried > 0)[task]
    chance = np.where(apart(case.tasks) & (tried > 0)[task], own, case.failed[outside].mean())
    return float(chance[first:end].mean())


def _burst(maker: Maker, table: TraceTable, case: _Case, burst: _Burst) -> Measured:
    inside, expected = case.failed[burst.first : burst.end], _expected(case, burst.first, burst.end)
    ids = case.indices[burst.first : burst.end]
    when = _when(table, int(ids[0]), int(ids[-1]))
    others = "the same tasks at other times" if apart(case.tasks).any() else "the others"
    verdict = (
        "a steady trend explains it as well: p " if burst.trend else "p " if burst.real else "chance: p "
    )
    text = (
        f"{inside.sum():.0f} of {inside.size} episodes that call it fail {when}, {100 * expected:.0f} % of "
        f"{others} ({verdict}{burst.p:.2g})"
    )
    examples = [_example(table, int(i), case.tool) for i in ids[inside > 0][:5]]
    excess = float(inside.mean()) - expected if burst.real and not burst.trend else 0.0
    return maker.value(
        "traces/burst_excess", excess, case.failed.size, f"tool/{case.tool}", evidence=examples, text=text
    )


def _load(maker: Maker, table: TraceTable, whole: _Case, burst: _Burst, level: float) -> Measured:
    cut = burst.real and not burst.trend
    case = whole.without(*_around(whole.failed, burst)) if cut else whole
    load, where = case.at_once, f"tool/{case.tool}"
    outside = " outside the burst" if cut else ""
    if not _varies(load) or not _MIN_FAILED <= case.failed.sum() < case.failed.size:
        few = f"{case.failed.sum():.0f} of {counted(case.failed.size, 'episode')} fail{outside}: too few to tell load from it"  # noqa: E501
        return maker.value("traces/load_excess", 0.0, whole.failed.size, where, text=few)
    assert load is not None
    away = load - load.mean()
    values = without_tasks(case.failed, case.tasks)
    p = permutation_p(values, case.tasks, lambda x: dot(x, away), _rng("load", case), case.groups)
    usual, seconds = high_load(load), looked_at_s(table)
    busy = load > usual
    high, low = case.failed[busy].mean(), case.failed[~busy].mean()
    excess = float(high - low) if p <= level else 0.0
    first = f" in their first {seconds:.3g} s" if seconds > 0 else ""
    text = (
        f"{100 * high:.0f} % of the episodes that call it fail{outside} when more than {usual:.3g} run at "
        f"once{first}, {100 * low:.0f} % otherwise ({'p ' if p <= level else 'chance: p '}{p:.2g})"
    )
    examples = [_example(table, int(i), case.tool) for i in case.indices[busy & (case.failed > 0)][:5]]
    return maker.value("traces/load_excess", excess, whole.failed.size, where, evidence=examples, text=text)


def _around(failed: Float64, burst: _Burst) -> tuple[int, int]:
    """The whole burst that the window is a part of: failures count for it as far as they lie above half way
    from the others' share."""
    inside = np.zeros(failed.size, bool)
    inside[burst.first : burst.end] = True
    above = failed - (failed[inside].mean() + failed[~inside].mean()) / 2
    before, after = np.cumsum(above[: burst.first][::-1]), np.cumsum(above[burst.end :])
    back = int(before.argmax()) + 1 if before.size and before.max() > 0 else 0
    on = int(after.argmax()) + 1 if after.size and after.max() > 0 else 0
    return burst.first - back, burst.end + on


def _no_load(maker: Maker, case: _Case) -> Measured | None:
    if case.at_once is None:
        why = "not every episode has a time and a duration"
    elif not _varies(case.at_once):
        why = "as many episodes run at once throughout"
    else:
        return None
    return maker.value("traces/load_excess", math.nan, 0, f"tool/{case.tool}", reason=why)


def _varies(load: Float64 | None) -> bool:
    return load is not None and bool(load.min() < load.max())


def _when(table: TraceTable, first: int, last: int) -> str:
    if not np.isfinite(table.time).all():
        return f"from {table.ids[first]} to {table.ids[last]}"
    texts = [_clock(table.time[i]) for i in (first, last)]
    return f"begun from {texts[0].removesuffix(_ZONE)} to {texts[1]}"


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime(f"%Y-%m-%d %H:%M:%S{_ZONE}")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"


def _example(table: TraceTable, i: int, tool: str) -> Evidence:
    when = f", begun {_clock(table.time[i])}" if math.isfinite(table.time[i]) else ""
    return Evidence(table.ids[i], -1, f"a call of {tool} fails{when}", table.sources[i])
