"""Do a tool's failures come in bursts, and do they come when many episodes run at once?

Both are asked of episodes that call the tool: did a call of it fail? What a burst is compared with, and why
that is fair to tasks of different difficulty, says `permutation_test`. Each model and policy version is
compared with itself: a policy that fails more is not an outage. Load is judged outside the worst burst: calls
that hang in an outage pile up, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import numpy as np

from trimtab.catalog import bound
from trimtab.measure.traces.builder import Maker, Measured
from trimtab.measure.traces.episode_times import high_load, looked_at_s
from trimtab.measure.traces.permutation_test import NARROWEST, apart, worst_window
from trimtab.measure.traces.tool_episodes import ToolEpisodes, tool_episodes
from trimtab.measure.traces.trend import is_trend
from trimtab.stats.array_kernels import dot
from trimtab.traces.core.plural import counted
from trimtab.traces.table.types import Evidence, TraceTable
from trimtab.typing import Bool, Float64, Int64

_MAX_TOOLS = 8  # of those that fail in most episodes; what is looked at is corrected for
_MIN_FAILED = 5
_ZONE = " UTC"


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
    whole = [case.comparable() for case in tool_episodes(maker)]
    cases = [case for case in whole if case.indices.size >= bound("trace_episodes")]
    judged = [case for case in cases if _MIN_FAILED <= case.failed.sum() < case.failed.size]
    judged = sorted(judged, key=lambda case: (-case.failed.sum(), case.tool))[:_MAX_TOOLS]
    family = sum(1 + _varies(case.at_once) for case in judged)
    level = bound("trace_level") / max(family, 1)
    yield from _unjudged(maker, [case for case in whole if case not in cases], bool(cases))
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


def _unjudged(maker: Maker, cases: list[ToolEpisodes], others: bool) -> Iterator[Measured]:
    """What cannot be judged: no tool has episodes enough, or none of one model and version."""
    for key in ("traces/burst_excess", "traces/load_excess"):
        for case in cases:
            why = f"no model and version calls it in {2 * NARROWEST} episodes or more"
            yield maker.value(key, math.nan, 0, f"tool/{case.tool}", reason=why)
        if not (cases or others):
            yield maker.value(key, math.nan, 0, reason="no tool is called in enough episodes")


def _worst(case: ToolEpisodes, level: float) -> _Burst:
    min_window = case.narrowest
    p = case.permutation_p("burst", lambda x: worst_window(x, min_window)[0])
    _, first, end = worst_window(case.values, min_window)
    burst = _Burst(p, p <= level, first, end)
    return replace(burst, trend=burst.real and _is_trend(case, burst))


def _is_trend(case: ToolEpisodes, burst: _Burst) -> bool:
    _, strata = np.unique(case.policies, return_inverse=True)
    return is_trend(case.failed, *_around(case, burst), strata)


def _expected(case: ToolEpisodes, first: int, end: int) -> float:
    """How many of the window's episodes would fail by what happens outside with the same model and version:
    at the same task, where it is attempted at several times."""
    outside = np.ones(case.failed.size, bool)
    outside[first:end] = False
    everywhere = case.failed[outside].mean()

    def chance(part: Int64) -> Float64:
        _, task = np.unique(case.tasks[part], return_inverse=True)
        away, failed = outside[part], case.failed[part]
        tried, lost = np.bincount(task, away), np.bincount(task, failed * away)
        own = np.divide(lost, tried, out=np.zeros(tried.size), where=tried > 0)[task]
        mean = failed[away].mean() if away.any() else everywhere
        return np.where(apart(case.tasks[part]) & (tried > 0)[task], own, mean)

    return float(case.by_stratum(chance)[first:end].mean())


def _burst(maker: Maker, table: TraceTable, case: ToolEpisodes, burst: _Burst) -> Measured:
    inside, expected = case.failed[burst.first : burst.end], _expected(case, burst.first, burst.end)
    ids = case.indices[burst.first : burst.end]
    when = _when(table, int(ids[0]), int(ids[-1]))
    others = "the same tasks at other times" if case.repeated else "the others"
    verdict = (
        "a steady trend explains it as well: p " if burst.trend else "p " if burst.real else "chance: p "
    )
    text = (
        f"{inside.sum():.0f} of {inside.size} episodes that call it fail {when}, {100 * expected:.0f} % of "
        f"{others} ({verdict}{burst.p:.2g}){_policies(table, case)}"
    )
    examples = [_example(table, int(i), case.tool) for i in ids[inside > 0][:5]]
    excess = float(inside.mean()) - expected if burst.real and not burst.trend else 0.0
    return maker.value(
        "traces/burst_excess", excess, case.failed.size, f"tool/{case.tool}", evidence=examples, text=text
    )


def _policies(table: TraceTable, case: ToolEpisodes) -> str:
    """How much models and versions fail, where there are several: a whole one that fails is not a burst."""
    shares = sorted((float(case.failed[part].mean()), int(case.policies[part[0]])) for part in case.strata)
    (low, best), (high, worst) = shares[0], shares[-1]
    names = [table.policies[one][:40] if one >= 0 else "unnamed" for one in (best, worst)]
    text = ""
    if len(shares) > 1:
        span = f"{100 * low:.0f} % ({names[0]}) to {100 * high:.0f} % ({names[1]})"
        text = f"; within each of {len(shares)} models and versions, which fail in {span}"
    left_out = f"; {counted(case.few, 'episode')} of rarer ones left out" if case.few else ""
    return text + left_out


def _load(maker: Maker, table: TraceTable, whole: ToolEpisodes, burst: _Burst, level: float) -> Measured:
    cut = burst.real and not burst.trend
    case = whole.without(*_around(whole, burst)) if cut else whole
    load, where = case.at_once, f"tool/{case.tool}"
    outside = " outside the burst" if cut else ""
    if not _varies(load) or not _MIN_FAILED <= case.failed.sum() < case.failed.size:
        few = f"{case.failed.sum():.0f} of {counted(case.failed.size, 'episode')} fail{outside}: too few to tell load from it"  # noqa: E501
        return maker.value("traces/load_excess", 0.0, whole.failed.size, where, text=few)
    assert load is not None
    away = load - load.mean()
    p = case.permutation_p("load", lambda x: dot(x, away))
    usual, seconds = high_load(load), looked_at_s(table)
    busy = load > usual
    high, low = case.failed[busy].mean(), case.failed[~busy].mean()
    excess = _gap_within(case, busy) if p <= level else 0.0
    first = f" in their first {seconds:.3g} s" if seconds > 0 else ""
    text = (
        f"{100 * high:.0f} % of the episodes that call it fail{outside} when more than {usual:.3g} run at "
        f"once{first}, {100 * low:.0f} % otherwise ({'p ' if p <= level else 'chance: p '}{p:.2g})"
    )
    examples = [_example(table, int(i), case.tool) for i in case.indices[busy & (case.failed > 0)][:5]]
    return maker.value("traces/load_excess", excess, whole.failed.size, where, evidence=examples, text=text)


def _gap_within(case: ToolEpisodes, busy: Bool) -> float:
    """Share of busy episodes that fail less that of the others, of one model and version at a time; each
    counts for as much as its smaller side tells."""
    gaps, weights = [0.0], [0.0]
    for part in case.strata:
        mine = busy[part]
        if 0 < mine.sum() < mine.size:
            gaps.append(float(case.failed[part][mine].mean() - case.failed[part][~mine].mean()))
            weights.append(float(mine.sum() * (~mine).sum() / mine.size))
    return float(np.average(gaps, weights=weights)) if sum(weights) else 0.0


def _around(case: ToolEpisodes, burst: _Burst) -> tuple[int, int]:
    """The whole burst that the window is a part of: failures count for it as far as they lie above half way
    from the share of the others of their model and version."""
    inside = np.zeros(case.failed.size, bool)
    inside[burst.first : burst.end] = True
    share, others = case.failed[inside].mean(), case.failed[~inside].mean()

    def usual(part: Int64) -> Float64:
        away = ~inside[part]
        return np.full(part.size, case.failed[part][away].mean() if away.any() else others)

    above = case.failed - (share + case.by_stratum(usual)) / 2
    before, after = np.cumsum(above[: burst.first][::-1]), np.cumsum(above[burst.end :])
    back = int(before.argmax()) + 1 if before.size and before.max() > 0 else 0
    on = int(after.argmax()) + 1 if after.size and after.max() > 0 else 0
    return burst.first - back, burst.end + on


def _no_load(maker: Maker, case: ToolEpisodes) -> Measured | None:
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
